#!/usr/bin/env bash
# Runs the tests, setting up .venv first if need be, a file of them on each processor core. Without
# arguments: all tests but those marked `slow`. `--all`: every test. Other arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

./scripts/bootstrap.sh
# Each process of tests has a core. Threads of its linear algebra would wait for those of the others.
export OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-1}"
if [[ $# -eq 0 ]]; then
  set -- -n auto --dist loadfile -m 'not slow'
elif [[ "$*" == --all ]]; then
  set -- -n auto --dist loadfile
fi
exec .venv/bin/python -m pytest "$@"
