#!/usr/bin/env bash
# Trains the embedded synthetic language task with BLT noise, setting up .venv first if need be.
# Arguments go to `dpfl train` and win over the preset: `scripts/quickstart.sh --rounds=20`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# An earlier run is replaced in the default folder only.
folder=(--output_dir=runs/quickstart --overwrite)
for argument in "$@"; do
  case "$argument" in -output_dir*|--output_dir*) folder=() ;; esac
done

./scripts/bootstrap.sh
exec .venv/bin/dpfl train --flagfile=quickstart "${folder[@]}" "$@"
