# Completion for bash. It asks the program for its commands, options and recipes, so it is always up to date.

_owt_help() { "${COMP_WORDS[@]:0:$1}" --help 2>/dev/null; }

# The allowed words of an option's value in the help: "--device NAME  cpu | cuda | auto: ..."
_owt_values() {
  _owt_help "$1" | tr -s '\n ' '  ' | grep -oE -- "$2 [A-Z]+ [a-z0-9-]+( \| [a-z0-9-]+)+" | cut -d' ' -f3- | tr -d '|'
}

_owt() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words=2 found=
  [ "${COMP_WORDS[1]}" != prepare ] || words=3  # owt prepare KIND
  if [ "$COMP_CWORD" = 1 ]; then
    found=$(_owt_help 1 | sed -nE 's/^  ([a-z-]+)  .*/\1/p')
  elif [ "$COMP_CWORD" -lt "$words" ]; then
    found=$(_owt_help 2 | sed -nE 's/.*owt prepare ([a-z]+) .*/\1/p')
  elif [[ $current == -* ]]; then
    found=$(_owt_help "$words" | grep -oE -- '^  --[a-z-]+')
  elif [[ $previous == --* ]]; then
    found=$(_owt_values "$words" "$previous")
  elif [ "$words" = 2 ]; then
    found=$("${COMP_WORDS[0]}" recipes 2>/dev/null | cut -d' ' -f1)
  fi
  mapfile -t COMPREPLY < <(compgen -W "$found" -- "$current")
  [ "$COMP_CWORD" -lt "$words" ] || [[ $current == -* ]] || mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current")
  compopt -o filenames 2>/dev/null || true  # outside a completion, in tests, there are no options to set
}
complete -F _owt owt
