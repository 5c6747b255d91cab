#!/usr/bin/env bash
# Runs the tests, setting up .venv first if need be, a file of them on each processor core. Three
# sizes: without arguments the quick ones, `--all` those of .ci/run (all but the `exhaustive` ones),
# `--exhaustive` every test. Other arguments, also after a size, go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

./scripts/bootstrap.sh
# Each process that a test starts would compile the package again.
unset PYTHONDONTWRITEBYTECODE
# Each process of tests has a core. Threads of its linear algebra would wait for those of the others.
export OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-1}"
# A process of tests that ends ends all: its file would be tried again, for as long as it takes.
parallel=(-n auto --dist loadfile --max-worker-restart=0)
if [[ $# -eq 0 ]]; then
  set -- "${parallel[@]}" -m 'not standard and not exhaustive'
elif [[ "$1" == --all ]]; then
  set -- "${parallel[@]}" -m 'not exhaustive' "${@:2}"
elif [[ "$1" == --exhaustive ]]; then
  set -- "${parallel[@]}" "${@:2}"
fi
exec .venv/bin/python -m pytest "$@"
