#!/usr/bin/env bash
# Tests how the built and the installed programs are linked and compiled. No library may be searched for in a folder
# that depends on the current folder, and library functions must not be replaceable at run time. Prints each case; exits
# 1 at the first that fails.
#
#   usage: tests/tools/hardened_test.sh OWT      OWT: the program in its build folder
set -euo pipefail

owt=$(realpath "$1")
build=$(dirname "$owt")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wrong() {
  echo "FAILED: $*" >&2
  exit 1
}

# check FILE: a program or a shared library.
check() {
  local dynamic path word
  dynamic=$(readelf --dynamic --wide "$1")
  while read -r path; do
    while read -r word; do
      [[ $word == /* || $word == '$ORIGIN' || $word == '$ORIGIN/'* ]] ||
        wrong "$1 looks for libraries in '$word', a word of its run path '$path'; wanted whole paths"
    done <<<"${path//:/$'\n'}"
  done < <(sed -nE 's/.*\((RPATH|RUNPATH)\).*\[(.*)\]$/\2/p' <<<"$dynamic")
  [[ $dynamic == *BIND_NOW* || $dynamic =~ FLAGS_1.*NOW ]] || wrong "$1 is not linked with -z now"
  [[ $(readelf --program-headers --wide "$1") == *GNU_RELRO* ]] || wrong "$1 is not linked with -z relro"
}

# check_all FOLDER: everything that was built there, without files in CMake's own folders and in packages from PyPI.
check_all() {
  local count=0 file
  while IFS= read -r -d '' file; do
    [ "$(head -c 4 "$file" | tr -d '\0')" = $'\x7fELF' ] || continue
    check "$file"
    count=$((count + 1))
  done < <(find "$1" \( -name CMakeFiles -o -name site-packages \) -prune -o -type f -perm -u+x -print0)
  [ "$count" -gt 0 ] || wrong "no program in $1"
  echo "passed: $count programs of $2"
}

# Optimized programs without a sanitizer check their writes to the stack and through the C library.
cache=$build/CMakeCache.txt
if grep -qE '^CMAKE_BUILD_TYPE:.*=Rel' "$cache" && ! grep -qE '^CMAKE_CXX_FLAGS:.*-fsanitize' "$cache"; then
  for program in "$build"/owt "$build"/owt-*; do
    [ -x "$program" ] && [ "$(stat -c %s "$program")" -gt 1000000 ] || continue  # the launcher of levels has no such code
    symbols=$(readelf --dyn-syms --wide "$program")
    [[ $symbols == *__stack_chk_fail* ]] || wrong "$program is not compiled with -fstack-protector-strong"
    [[ $symbols =~ __[a-z]+_chk@ ]] || wrong "$program is not compiled with _FORTIFY_SOURCE"
    echo "passed: ${program##*/} checks its stack and its buffers"
  done
fi

check_all "$build" "the build"
cmake --install "$build" --prefix "$work" >"$work/log" || wrong "cmake --install: $(cat "$work/log")"
check_all "$work" "an installation"
