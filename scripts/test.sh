#!/usr/bin/env bash
# Runs the tests, setting up .venv first if need be. Arguments go to pytest; without any, all tests run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

./scripts/bootstrap.sh
exec .venv/bin/python -m pytest "$@"
