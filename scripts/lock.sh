#!/usr/bin/env bash
# Makes requirements.lock from requirements.in: one lock for Python 3.10 and 3.11 on Linux x86-64.
# Needs uv (tried: 0.13) on the PATH, or its path in UV. Arguments are passed on to it, for example
# `--upgrade-package tqdm`, or `--upgrade` for everything; without any, pins stay where they can.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cp requirements.in "$work"
if [[ -f requirements.lock ]]; then cp requirements.lock "$work"; fi
cd "$work"

grep -oE '^(jax|jaxlib|packaging)==[^ ]+' requirements.in > overrides.txt
sed -n 's/^# drop: \([^ ]*\).*/\1/p' requirements.in > excludes.txt
# Otherwise it resolves for later Pythons too, where nothing satisfies both JAX and TFF; and repeats
# this bound for every package.
bound="python_full_version < '3.12'"
printf '[tool.uv]\nenvironments = ["%s"]\n' "$bound" > pyproject.toml

# --fork-strategy fewest: the same versions for both Pythons, where one version serves both.
"${UV:-uv}" pip compile requirements.in --output-file requirements.lock --quiet \
  --overrides overrides.txt --excludes excludes.txt --only-binary :all: \
  --universal --python-version 3.10 --fork-strategy fewest \
  --generate-hashes --no-header --no-annotate "$@"

{
  cat <<'HEADER'
# Everything dpfl needs, pinned and hashed, for Python 3.10 and 3.11 on Linux x86-64 (glibc 2.31 or later).
# Made by scripts/lock.sh from requirements.in, which says why these packages and why no others:
# do not edit. Install with `pip install --no-deps --require-hashes -r requirements.lock`; pip cannot
# resolve it, because tensorflow-federated pins a jaxlib (0.4.14) that the package index no longer has.
HEADER
  sed "s/ ; $bound and / ; /; s/ ; $bound / /; s/ and $bound / /" requirements.lock
} > complete.lock
mv complete.lock "$OLDPWD/requirements.lock"
