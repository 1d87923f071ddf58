#!/usr/bin/env bash
# Prints docs/commands.md: what --help of the program and of each of its commands prints.
#
#   usage: tools/commands_page.sh OWT > docs/commands.md
set -euo pipefail

owt=$1
names_in() { sed -n "s/^$1\([a-z-]*\)  *[A-Za-z].*/\1/p"; }  # names_in START: the words after START in a list

section() {  # section WORD...: the help of a command
  printf '\n## `owt %s`\n```text\n' "$*"
  "$owt" "$@" --help
  printf '```\n'
}

commands=$("$owt" --help | names_in '  ' | grep -vx owt)
kinds=$("$owt" prepare --help | names_in '[a-zA-Z: ]*owt prepare ' | grep .)
cat <<'PAGE'
# Commands

This page lists every command and option of `owt`, for looking them up. It is what `--help` prints;
`tools/commands_page.sh build/owt > docs/commands.md` makes it.

PAGE
for command in $commands; do echo "* [\`owt $command\`](#owt-$command)"; done
printf '\n## `owt`\n```text\n'
"$owt" --help | sed '1s/ (sources [^)]*)//'
printf '```\n'
for command in $commands; do
  section "$command"
  [ "$command" != prepare ] || for kind in $kinds; do section prepare "$kind"; done
done
