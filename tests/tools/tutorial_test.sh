#!/usr/bin/env bash
# Tests that the commands of docs/tutorial.md run and print what the page shows.
set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/../../tools/make_tutorial.sh" --check "$1"
