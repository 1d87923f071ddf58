#!/usr/bin/env bash
# Adds the layer of docs/add_a_layer.md to a copy of the tree, with the files of the page. Checks the copy like CI: the
# format, the direction of includes, and that only these files differ.
#
#   usage: tests/add_a_layer_test.sh                 the checks
#          tests/add_a_layer_test.sh --write FOLDER   writes the files into the folder; the build compiles them from
#                                                     there into added_layer_test, which runs the test of the page
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
page=$root/docs/add_a_layer.md

# The file after applying the diff: parts between lines of @@, without line numbers.
changed() {
  local text line old= new=
  text=$(<"$root/$1")$'\n'
  while IFS= read -r line; do
    case $line in
      @@*)
        [[ $text == *"$old"* ]] || { echo "error: $page: $1 does not hold: $old" >&2; exit 1; }
        text=${text/"$old"/"$new"} old= new=
        ;;
      -*) old+=${line:1}$'\n' ;;
      +*) new+=${line:1}$'\n' ;;
      *) old+=${line:1}$'\n' new+=${line:1}$'\n' ;;
    esac
  done < <(cat "$2"; echo @@)
  printf '%s' "$text"
}

# Every "### N. `FILE`: ..." of the page names the file that the next block of code is, or changes.
write_files() {
  local folder=$1 change file
  mkdir -p "$folder/layers" "$folder/tests/layers" "$folder/docs"
  awk -v folder="$folder" '
    /^### [0-9]+\. `/ { split($0, part, "`"); file = folder "/" part[2] }
    /^```/ { if (writes) close(file)
             writes = !writes && file != ""
             if (writes && $0 == "```diff") file = file ".diff"
             if (writes) { printf "" >file; next }
             file = "" }
    writes { print >file }' "$page"
  for change in "$folder"/*/*.diff; do
    file=${change#"$folder/"}
    changed "${file%.diff}" "$change" >"$folder/${file%.diff}"
    rm "$change"
  done
}

if [ "${1:-}" = --write ]; then
  write_files "$2"
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tree"
(cd "$root" && cp -r --parents src layers data docs tools tests .clang-format "$work/tree")
write_files "$work/tree"

echo "the copy differs in the files that the page names"
for folder in layers tests docs; do diff -rq "$root/$folder" "$work/tree/$folder" || true; done >"$work/changed"
files=$(grep -c '^### [0-9]' "$page")
[ "$(wc -l <"$work/changed")" -eq "$files" ] || { cat "$work/changed"; echo "error: wanted $files files"; exit 1; }

echo "includes keep their direction, and the format is that of the tree"
"$work/tree/tools/check_includes.sh" "$work/tree"
# Only the files of the page: tools/test.sh checks the others.
mkdir -p "$work/page"/{src,layers,data,tools,tests,configs}
(cd "$root" && cp -r tools/{check_format.sh,packages.sh} "$work/page/tools" && cp .clang-format CMakeLists.txt "$work/page")
write_files "$work/page"
"$work/page/tools/check_format.sh"
