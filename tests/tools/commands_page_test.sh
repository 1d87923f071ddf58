#!/usr/bin/env bash
# docs/commands.md is what the program's --help prints.
#
#   usage: tests/tools/commands_page_test.sh OWT
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if ! diff "$root/docs/commands.md" <("$root/tools/commands_page.sh" "$1"); then
  echo "FAILED: docs/commands.md (<) is not what --help prints (>); tools/commands_page.sh $1 > docs/commands.md" >&2
  exit 1
fi
echo "passed: docs/commands.md is what --help prints"
