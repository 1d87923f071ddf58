#!/usr/bin/env bash
# Tests every command with every option: what it writes, and that a failing command changes nothing (commands.py).
#
#   usage: commands_test.sh OWT
set -euo pipefail

exec python3 "$(dirname "${BASH_SOURCE[0]}")/commands.py" "$1"
