#!/usr/bin/env bash
# Tests the command line of tools/glyphs.sh. Nothing is installed or drawn; tests/glyphs_test.sh does that. Prints each
# case; exits 1 at the first that fails.
#
#   usage: glyphs_test.sh PROGRAM
set -euo pipefail

owt=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR/../support
source "$here/../support/bench_cases.sh"
glyphs=$here/../../tools/glyphs.sh

case_name="--help prints the usage"
ends_with 0 "$glyphs" --help
expect '^  usage: tools/glyphs.sh WORK '
expect '^  --faces N '
passed

# A machine without the packages, on which this user cannot install any.
mkdir "$work/bin"
for tool in bash cat dirname sed; do ln -s "$(command -v "$tool")" "$work/bin/$tool"; done
printf '#!%s\nexit 1\n' "$(command -v bash)" >"$work/bin/dpkg-query"
printf '#!%s\necho 1000\n' "$(command -v bash)" >"$work/bin/id"
printf '#!%s\nexit 1\n' "$(command -v bash)" >"$work/bin/apt-get"
chmod +x "$work"/bin/*

case_name="wrong command lines end with one line and the usage, and make no folder"
for words in "" "--classes $work/new" "$work/new --classes 0" "$work/new --side x" "$work/new --side 8" \
  "$work/new --faces" "$work/new $work/other" "$work/new --fonts 3" "$work/new --owt" \
  "$work/new --owt $work/no_program"; do
  # shellcheck disable=SC2086
  PATH=$work/bin ends_with 2 "$glyphs" $words
  expect '^glyphs: error: '
  expect '^usage: tools/glyphs.sh WORK '
  [ "$(wc -l <"$work/output")" = 2 ] || wrong "more than two lines for '$words'"
  [ ! -e "$work/new" ] || wrong "'$words' made a folder"
done
passed

case_name="a user who cannot install packages reads the command for root"
PATH=$work/bin ends_with 1 "$glyphs" "$work/new" --owt "$owt"
expect '^  apt-get install --no-install-recommends python3-pil python3-fonttools fonts-.* fonts-wqy-zenhei$'
[ ! -e "$work/new" ] || wrong "a folder was made"
passed
