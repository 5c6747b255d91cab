#!/usr/bin/env bash
# Builds the documentation site into site/, setting up .venv first if need be; open site/index.html. Warnings, such as
# a link that leads nowhere, are errors. `--serve` shows the site at http://127.0.0.1:8000 instead, and follows changes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

./scripts/bootstrap.sh
# Its makers' announcement of another program, which is printed in every build.
export NO_MKDOCS_2_WARNING=true
if [[ "${1:-}" == --serve ]]; then
  exec .venv/bin/python -m mkdocs serve "${@:2}"
fi
.venv/bin/python -m mkdocs build --quiet --strict --clean
.venv/bin/python -m scripts.site.check site
