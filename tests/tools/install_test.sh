#!/usr/bin/env bash
# Tests that the results of cmake --install work: the program with its recipes, completion, manual pages.
#
#   usage: tests/tools/install_test.sh OWT      OWT: the program in its build folder
set -euo pipefail

owt=$(realpath "$1")
package=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../tools/package" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wrong() {
  echo "FAILED: $*" >&2
  exit 1
}
passed() { echo "passed: $*"; }

cmake --install "$(dirname "$owt")" --prefix "$work/usr" >"$work/log" || wrong "cmake --install: $(cat "$work/log")"
mkdir "$work/elsewhere"
cd "$work/elsewhere"
PATH=$work/usr/bin:$PATH

[ "$(command -v owt)" = "$work/usr/bin/owt" ] || wrong "the program is not in bin"
owt plan alexnet_owt --workers 4 | grep fc6 >/dev/null || wrong "no plan of a model by its name"
owt recipes --json | grep "$work/usr/share/owt/configs/cifar10_quick.toml" >/dev/null || wrong "the recipes are not in share/owt/configs"
passed "the installed program finds its recipes from any folder"

[ -s "$work/usr/share/doc/owt/copyright" ] || wrong "no licence"
[ -s "$work/usr/share/doc/owt/README.md" ] || wrong "no README.md"
[ -s "$work/usr/share/doc/owt/docs/recipes.md" ] || wrong "no pages that README.md names"
passed "licence, README and its pages are installed"

source "$work/usr/share/bash-completion/completions/owt"
complete_words() {  # complete_words WORD...: the completions of the last word of a command line
  COMP_WORDS=(owt "$@")
  COMP_CWORD=$#
  COMPREPLY=()
  _owt
  printf '%s ' "${COMPREPLY[@]}"
}
expect() {  # expect WANTED WORD...
  local wanted=$1 found
  shift
  found=$(complete_words "$@")
  [ "$found" = "$wanted" ] || wrong "'owt $*' is completed with '$found', wanted '$wanted'"
}
touch cifar_notes.toml
expect "train " tr
expect "imagenet " prepare im
expect "--workers " train x --wor
expect "--shard-images " prepare imagenet --shard
expect "tf32 " train x --precision tf
expect "dp dp-zero dp-star " time x --parallel d
expect "cifar10_quick " plan cifar10_q
expect "cifar_notes.toml " train cifar_
expect "bash " completion ba
expect "--batch " train --batc
passed "commands, options, their values, recipes and files are completed"

# zsh and fish call the same program; their own scripts are tried where these shells are.
zsh_script=$work/usr/share/zsh/site-functions/_owt fish_script=$work/usr/share/fish/vendor_completions.d/owt.fish
[ "$(head -n 1 "$zsh_script")" = "#compdef owt" ] || wrong "no completion for zsh"
grep -q '^complete -c owt' "$fish_script" || wrong "no completion for fish"
if command -v zsh >/dev/null; then
  found=$(zsh -f -c "compdef() { :; }; _describe() { print -l -- \"\${found[@]}\"; }; _files() { :; }
                     source '$zsh_script'; words=(owt train x --precision tf); CURRENT=5; _owt")
  [ "$found" = tf32 ] || wrong "zsh completes '$found'"
fi
if command -v fish >/dev/null; then
  found=$(fish --no-config -c "source '$fish_script'; complete -C 'owt train x --precision tf'")
  [ "$found" = tf32 ] || wrong "fish completes '$found'"
fi
passed "the scripts for zsh and fish are installed"

if command -v help2man >/dev/null; then
  mkdir "$work/with blanks"
  ln -s "$owt" "$work/with blanks/owt"
  bash "$package/man_pages.sh" "$work/with blanks/owt" "$work/man1"
  for page in owt owt-train owt-plan owt-prepare; do
    [ -s "$work/man1/$page.1" ] || wrong "no manual page $page.1"
  done
  grep -q -- 'workers' "$work/man1/owt-train.1" || wrong "owt-train.1 lacks an option"
  grep -q '75' "$work/man1/owt.1" || wrong "owt.1 lacks the exit codes"
  passed "manual pages are made from the help"
fi
