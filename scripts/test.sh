#!/usr/bin/env bash
# Runs the tests, setting up .venv first if need be, a file of them on each processor core. Without
# arguments: all tests but those marked `slow`. `--all`: every test. Other arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

./scripts/bootstrap.sh
if [[ $# -eq 0 ]]; then
  set -- -n auto --dist loadfile -m 'not slow'
elif [[ "$*" == --all ]]; then
  set -- -n auto --dist loadfile
fi
exec .venv/bin/python -m pytest "$@"
