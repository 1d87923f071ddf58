#!/usr/bin/env bash
# The README's two commands on a fresh Debian 13: tools/test_in_root.sh trixie. Takes its options; --help lists them.
exec "$(dirname "${BASH_SOURCE[0]}")/test_in_root.sh" "$@" trixie
