#!/usr/bin/env bash
# Makes manual pages of owt and its commands from the output of --help.
#
#   usage: tools/package/man_pages.sh OWT FOLDER     writes owt.1, owt-train.1, ... into FOLDER; needs help2man
set -euo pipefail

folder=$2
# Calls owt by its name: help2man passes the command to a shell, which would split a path with blanks.
PATH=$(cd "$(dirname "$1")" && pwd):$PATH
mkdir -p "$folder"
version=$(owt --version | cut -d" " -f2)

page() {  # page NAME ABOUT COMMAND: NAME.1 from `COMMAND --help`
  help2man --no-info --no-discard-stderr --version-string="$version" --name="$2" --output="$folder/$1.1" "$3"
}

owt --help | sed -n 's/^  \([a-z-]*\)  *\(.*\)/\1 \2/p' | grep -v '^owt ' | while read -r command about; do
  page "owt-$command" "$about" "owt $command"
done
page owt "$(owt --help | sed -n '1s/^[^:]*: //p')" owt  # made last, because cmake waits for this file
