#!/usr/bin/env bash
# Makes the wheel of dpfl in dist/. With `--try PYTHON` it is then installed in an empty environment of that
# Python, and the five commands of the README go from there to the report of a run, each with its seconds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=python3
if [[ $# -gt 0 ]]; then
  if [[ $# -ne 2 || "$1" != --try ]]; then
    printf 'wheel: %s: must be nothing, or --try PYTHON\n' "$*" >&2
    exit 2
  fi
  python="$2"
fi
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

# A copy: a folder `build` may have files that are gone, and setuptools would take them.
mkdir "$folder/source"
cp -r dpfl experiments configs setup.py pyproject.toml README.md LICENSE requirements*.lock "$folder/source"
"$python" -m venv "$folder/venv"
rm -f dist/dpfl-*.whl
"$folder/venv/bin/pip" wheel --quiet --no-deps --wheel-dir=dist "$folder/source"
wheel="$(echo "$PWD"/dist/dpfl-*.whl)"
printf '%s\n' "$wheel"
if [[ $# -eq 0 ]]; then exit; fi

step() {
  local start=$SECONDS
  printf '\n$ %s\n' "$*"
  "$@"
  printf '[%s s]\n' "$((SECONDS - start))"
}
mkdir "$folder/work"
cd "$folder/work"
PATH="$folder/venv/bin:$PATH"
step pip install --quiet "$wheel[accounting]"
step dpfl install_tff
step dpfl sample_text --output=texts.jsonl
step dpfl suggest --data_path=texts.jsonl --target_epsilon=4 --output=mine.flags
step dpfl train --flagfile=mine.flags --output_dir=runs/mine
step dpfl report --run_dir=runs/mine
