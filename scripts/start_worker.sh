#!/usr/bin/env bash
# Starts a TFF worker on this host, setting up .venv first if need be:
# `scripts/start_worker.sh [port] --token_file=worker.token` for other hosts, which need a copy of that
# file; without a token only this host reaches it. For more, --help.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ "${1:-}" =~ ^[0-9]+$ ]]; then set -- "--port=$1" "${@:2}"; fi
./scripts/bootstrap.sh
exec .venv/bin/python -m experiments.start_worker "$@"
