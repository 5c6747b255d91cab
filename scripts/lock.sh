#!/usr/bin/env bash
# Makes requirements.lock from requirements.in, and requirements-gpu.lock from requirements-gpu.in: for
# Python 3.11, 3.12 and 3.13 on Linux x86-64. Needs uv (tried: 0.13) on the PATH, or its path in UV.
# Arguments are passed on to it, for example `--upgrade-package tqdm`, or `--upgrade` for everything;
# without any, pins stay where they can.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
cp "$root"/requirements*.in "$root"/requirements.lock .

sed -n 's/^# drop: \([^ ]*\).*/\1/p' requirements.in > excludes.txt
# The lock is for these machines; uv repeats the bound for every package.
bound="python_full_version < '3.14' and implementation_name == 'cpython' and platform_machine == 'x86_64'"
bound+=" and platform_python_implementation == 'CPython' and sys_platform == 'linux'"
{
  printf '[tool.uv]\nenvironments = ["%s"]\n' "$bound"
  # Without their requirements, and whichever Python they ask for.
  sed -nE 's/^(tensorflow-(federated|privacy))==([^ ]+).*/\n[[tool.uv.dependency-metadata]]\nname = "\1"\nversion = "\3"\nrequires-dist = []/p' requirements.in
} > pyproject.toml

# --fork-strategy fewest: the same versions for all Pythons, where one version serves them.
compile() {
  "${UV:-uv}" pip compile "$1" --output-file "$2" --quiet --only-binary :all: --no-header --no-annotate \
    --universal --python-version 3.11 --fork-strategy fewest "${@:3}"
}
compile requirements.in requirements.lock --excludes excludes.txt --generate-hashes "$@"
# `dpfl install_tff` takes the first part of the lock.
sed '/^# Documentation:/,/^# Left out/d' requirements.in > runtime.in
compile runtime.in runtime.txt --excludes excludes.txt --constraints requirements.lock
grep -v "^tensorflow$" excludes.txt > gpu-excludes.txt
compile requirements-gpu.in gpu.lock --excludes gpu-excludes.txt --constraints requirements.lock --generate-hashes

# Prints the entries of the lock $2 whose names the file $3 has, or with `-v` in $1 has not.
entries() {
  sed "s/ ; $bound / /" "$2" | awk -v not="$1" -v names="$3" '
    BEGIN { while ((getline line < names) > 0) if (line ~ /^[a-z]/) { sub(/==.*/, "", line); known[line] } }
    /^[a-z]/ { name = $0; sub(/==.*/, "", name); show = (name in known) != (not == "-v") }
    show'
}
{
  cat <<'HEADER'
# Everything dpfl needs, pinned and hashed, for Python 3.11, 3.12 and 3.13 on Linux x86-64 (glibc 2.31 or
# later). Made by scripts/lock.sh from requirements.in, which says why these packages and why no others:
# do not edit. `dpfl install_tff` and scripts/bootstrap.sh install it. pip cannot resolve it, because
# tensorflow-federated asks for Python 3.11 or earlier and for TensorFlow 2.14; by hand, it is `pip install
# --no-deps --ignore-requires-python --require-hashes -r requirements.lock`.

# What runs: dpfl install_tff.
HEADER
  entries '' requirements.lock runtime.txt
  printf '\n# Documentation and development.\n'
  entries -v requirements.lock runtime.txt
} > complete.lock
{
  printf '# TensorFlow with GPU kernels, in place of tensorflow-cpu: dpfl install_tff --gpu. Made by scripts/lock.sh.\n'
  entries -v gpu.lock runtime.txt
} > "$root/requirements-gpu.lock"
mv complete.lock "$root/requirements.lock"
