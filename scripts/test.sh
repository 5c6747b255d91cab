#!/usr/bin/env bash
# Runs the tests, setting up .venv first if need be. Arguments go to pytest; without any, all tests run,
# a file of them on each processor core.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

./scripts/bootstrap.sh
if [[ $# -eq 0 ]]; then set -- -n auto --dist loadfile; fi
exec .venv/bin/python -m pytest "$@"
