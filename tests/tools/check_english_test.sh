#!/usr/bin/env bash
# What tools/check_english.py finds in pages and comments, and what it leaves alone. Prints each case; exits 1 at the
# first that fails.
set -euo pipefail

script=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/tools/check_english.py
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

check() {  # check FILE TEXT: its exit status, of a file with this text
  mkdir -p "$(dirname "$1")"
  printf '%b\n' "$2" >"$1"
  status=0
  python3 "$script" "$1" >output 2>&1 || status=$?
}
wrong() {
  echo "FAILED: $*: status $status" >&2
  sed 's/^/  | /' output >&2
  exit 1
}
finds() {  # finds FILE:LINE WHAT: that the last check found it
  [ $status = 1 ] && grep -qE "^$1: .*$2" output || wrong "$1: $2 is found"
}
passes() {
  [ $status = 0 ] && [ ! -s output ] || wrong "$* passes"
}
words() {  # words COUNT: a sentence of COUNT words
  printf 'Word%s.' "$(printf ' word%.0s' $(seq 2 "$1"))"
}

check a.md "A line.\n\nThe gradients go\nhome after a step."
finds a.md:3 "go home"
check a.h "int a;  // the gradients go home"
finds a.h:1 "go home.*reduce-scatter"
check a.sh "a=1  # nobody reads it\n# Ranks that go home."
finds a.sh:1 nobody
finds a.sh:2 "go home"
echo "passed: a phrase is found in pages and comments, and comes with another"

check a.md 'The option `--go home` is code, and [a link](behind.md) has a target.\n```\nthe gradients go home\n```'
passes "code and a target of a link"
check a.cpp 'auto a = "// Of a string, behind it";\nauto b = R"(// Of)";  // Bytes per rank.'
passes "a string"
check a.sh "echo '# Of a string' \"\${#a}\"  # Bytes per rank."
passes "a string of a script"
echo "passed: code, links and strings are left alone"

check a.h "// Of a layer, the output.\nint a;\nint b;  // of a layer\nint c;  // bytes\n        // of each rank"
finds a.h:1 "begins 'Of a layer"
finds a.h:3 "begins 'of a layer"
[ "$(grep -c begins output)" = 2 ] || wrong "a line that continues a comment is no beginning"
check a.cu "// Bytes of a rank.\n// Those for others count twice.\n//\n// That have left."
finds a.cu:2 "begins 'Those for"
finds a.cu:4 "begins 'That have"
check a.md "Who waits for it? Whoever adds a layer writes a test. See e.g. Fig. 2."
finds a.md:1 "begins 'Whoever adds"
[ "$(grep -c begins output)" = 1 ] || wrong "a question may begin with Who"
echo "passed: fragments are found at the beginning of comments and sentences"

check a.md "$(words 46)"
finds a.md:1 "46 words"
check a.md "$(printf 'A short sentence.\n\n%.0s' {1..9})\n\n$(words 45)"
passes "one long sentence of ten"
check a.md "$(printf 'A short sentence.\n\n%.0s' {1..8})\n\n$(words 40)\n\n$(words 40)"
finds a.md:1 "40 in the 90th percentile"
check a.md "$(words 21)"
finds a.md:1 "21 words per sentence in the median"
check a.md "| $(words 50) |\n\n# $(words 50)\n\nA short sentence."
passes "a long row of a table"
check a.h "// $(words 50)"
passes "a long comment"
echo "passed: sentences of pages are short in the median, in the 90th percentile and at most"

check docs/models.md "The key is older than the others, and is now required."
finds docs/models.md:1 "older than"
finds docs/models.md:1 "now"
check docs/report.md "The page is older than the run now."
passes "history in another page"
echo "passed: pages of reference have no history"

printf 'One two three.\n\nOne two three four five.\n' >a.md
python3 "$script" --measure a.md >output
grep -qE '^ +3 +5 +5  a\.md$' output || wrong "--measure prints words per sentence"
echo "passed: --measure prints words per sentence"

mkdir -p tree/{tools,src,other}
cp "$script" tree/tools/
printf '// Of a file.\n' | tee tree/src/a.h tree/src/b.h >tree/other/c.h
git init -q tree
git -C tree add src/a.h other/c.h
status=0
python3 tree/tools/check_english.py >output 2>&1 || status=$?
finds src/a.h:1 "Of a file"
[ "$(grep -c write: output)" = 1 ] || wrong "only tracked files of the folders of code are checked"
echo "passed: without files, all tracked ones of the folders of code are checked"
