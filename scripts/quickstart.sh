#!/usr/bin/env bash
# Trains the embedded synthetic language task with BLT noise, setting up .venv first if need be.
# Arguments go to dpfl train and win over the preset: `scripts/quickstart.sh --rounds=20`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

output_dir=runs/quickstart
for argument in "$@"; do  # for what is said at the end
  case "$argument" in --output_dir=*) output_dir="${argument#*=}" ;; esac
done

./scripts/bootstrap.sh
.venv/bin/dpfl train --flagfile=quickstart \
  --output_dir="$output_dir" --overwrite "$@"
printf 'Results in %s: metrics.csv, privacy_report.md, plots/, tensorboard/\n' "$output_dir"
