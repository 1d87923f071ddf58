#!/usr/bin/env bash
# Runs the README's two commands on a fresh Debian 13: tools/test_in_root.sh trixie. Same options; --help lists them.
exec "$(dirname "${BASH_SOURCE[0]}")/test_in_root.sh" "$@" trixie
