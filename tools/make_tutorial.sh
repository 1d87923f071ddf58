#!/usr/bin/env bash
# Runs the commands of docs/tutorial.md, in their order and unchanged, in a fresh folder. It writes their output and the
# pictures that they make into the page and docs/images.
#
#   usage: tools/make_tutorial.sh [OWT]            updates the page; OWT: the program, default build/owt
#          tools/make_tutorial.sh --check [OWT]    writes nothing: uses few photographs, and fails if a command fails or
#                                                  its output differs from the page, except in figures
#
# A block of code without a language holds commands. A comment above a block or picture says how the script handles it:
#   file NAME          save the block as this file
#   prints SCRIPT      the lines that sed -n prints from the output of the last commands
#   begins so SCRIPT   likewise, but --check compares only each line's first word
#   as many as SCRIPT  likewise, but --check compares only the number of lines
#   until stopped      the command runs until it is interrupted
#   with your own data the commands are not run
#   shows FUNCTION ... a function of this script makes the picture below
# Pictures need chromium-headless-shell.
set -euo pipefail

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
  exit 0
fi
check=false
if [ "${1:-}" = --check ]; then check=true && shift; fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
owt=$(realpath "${1:-$root/build/owt}")
page=$root/docs/tutorial.md images=$root/docs/images
PATH=$(dirname "$owt"):$PATH
export OMP_WAIT_POLICY=PASSIVE  # threads that spin would take time from other processes

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/run"
cd "$work/run"

stop() {
  echo "make_tutorial: error: $1" >&2
  [ ! -s "$work/printed" ] || sed 's/^/  | /' "$work/printed" >&2
  exit 1
}

# For --check: 64 photographs, two steps an epoch, two epochs.
smaller() {
  if $check; then
    sed -E 's/--photos$/--photos --train 64 --test 20/; s/--train 100 --test 400/--train 64 --test 20/
            s/^epochs = 12/epochs = 2/; s/^batch = 64/batch = 32/; s/rows = 16/rows = 8/
            s/^owt time .*/& --steps 3/; s/^owt watch .*/& --port 0/'
  else
    cat
  fi
}

run() {  # run MARKER COMMANDS
  local commands status=0
  commands=$(smaller <<<"$2")
  case $1 in
    "with your own data") return ;;
    "until stopped")  # job control, because without it a command in the background ignores Ctrl-C
      commands="set -m; $commands & until [ -s '$work/printed' ]; do kill -0 \$!; sleep 0.05; done
        kill -INT \$!; wait \$! || [ \$? = 130 ]"
      ;;
  esac
  bash -euo pipefail -c "$commands" >"$work/printed" 2>&1 </dev/null || status=$?
  [ "$status" = 0 ] || stop "exit status $status of: $commands"
}

# The part of the output that --check compares: without figures, their plurals and table padding.
form() {  # form MARKER
  sed -E 's/ 1 shard,/ 1 shards,/; s/of [0-9]+ to [0-9]+ images$/of 0 images each/
          s/[0-9]+([.,:e][+-]?[0-9]+)*/0/g; s/ +/ /g; s/^ //' | case $1 in
    "begins so"*) cut -d' ' -f1 ;;
    "as many as"*) sed 's/.*/a line/' ;;
    *) cat ;;
  esac
}

print() {  # print MARKER OLD: the lines that the marker selects
  local script=${1#prints }
  script=${script#begins so }
  sed -n "${script#as many as }" "$work/printed" >"$work/chosen"
  [ -s "$work/chosen" ] || stop "nothing that is printed fits: $1"
  if $check && ! diff <(form "$1" <<<"$2") <(form "$1" <"$work/chosen") >"$work/differs"; then
    sed 's/^/  | /' "$work/differs" >&2
    stop "the page (<) shows other text than the commands print (>), below: $1"
  fi
  cat "$work/chosen"
}

browser() { chromium-headless-shell --no-sandbox --hide-scrollbars --allow-file-access-from-files "$@" 2>"$work/browser"; }

shoot() {  # shoot WIDTH OUT < HTML: the whole page
  local height
  cat >"$work/run/.shot.html"
  height=$({ cat .shot.html; echo '<script>onload=()=>document.title="high "+document.documentElement.scrollHeight</script>'; } \
    >.tall.html && browser --window-size="$1,10" --dump-dom "file://$PWD/.tall.html" | grep -oE 'high [0-9]+' | head -n 1)
  browser --window-size="$1,${height#high }" --screenshot="$2" "file://$PWD/.shot.html" >/dev/null
}

drawn() {  # drawn OUT FOLDER: the first photograph of each class
  local class
  for class in "$2"/train/*; do
    echo "<img style='height:96px;margin:2px' src='$(find "$class" -name '*.jpg' | sort | head -n 1)'>"
  done | { echo "<body style='margin:0;line-height:0'>" && cat; } | shoot 640 "$1"
}
image() {  # image OUT FILE WIDTH
  echo "<body style='margin:0;line-height:0'><img style='width:$3px' src='$2'>" | shoot "$3" "$1"
}
section() {  # section OUT REPORT ID FIGURES: the first figures of a report's section, with at most five images each
  { sed -n '/<style>/,/<\/style>/p' "$2"
    echo "<style>body{padding:1px 12px;max-width:none}h2{margin-top:0.5rem}
          details,figure:nth-of-type(n+$(($4 + 1))),.images li:nth-child(n+6){display:none}</style>"
    sed -n "/<section id=\"$3\"/,/<\/section>/p" "$2"; } | shoot 1040 "$1"
}

show() {  # show FUNCTION OUT ARGUMENT...
  local picture=$images/$2
  $check || "$1" "$picture" "${@:3}"
  [ -s "$picture" ] || stop "there is no $picture"
  [ "$(stat -c %s "$picture")" -le 150000 ] || stop "$picture is larger than 150 kB"
}

block() {  # the lines up to the block's end
  local line
  while IFS= read -r line && [ "$line" != '```' ]; do printf '%s\n' "$line"; done
}

shows='^!\[.*\]\(images/(.*)\)$'
marker=
while IFS= read -r line; do
  printf '%s\n' "$line"
  case $line in
    '<!-- '*)
      marker=${line#<!-- }
      marker=${marker% -->}
      continue
      ;;
    '```'*)
      body=$(block)
      case $line$marker in
        '```') run "$marker" "$body" ;;
        '```u'* | '```w'*) run "$marker" "$body" ;;
        '```toml'file*) smaller <<<"$body" >"${marker#file }" ;;
        '```text'*) body=$(print "$marker" "$body") ;;
      esac
      printf '%s\n```\n' "$body"
      ;;
    '!['*)
      [[ $line =~ $shows && $marker = shows* ]] || stop "no comment says how it is made: $line"
      read -ra words <<<"${marker#shows }"
      show "${words[0]}" "${BASH_REMATCH[1]}" "${words[@]:1}"
      ;;
  esac
  marker=
done <"$page" >"$work/page.md"
$check || cp "$work/page.md" "$page"
