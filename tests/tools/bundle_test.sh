#!/usr/bin/env bash
# What tools/bundle.sh packs and refuses, on small builds of its own: a program and a library.
# Prints each case; exits 1 at the first that fails.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

begin() { case_name=$1; }
passed() { echo "passed: $case_name"; }
wrong() {
  echo "FAILED: $case_name: $*" >&2
  sed 's/^/  | /' "$work/output" >&2
  exit 1
}
bundle() { "$root/tools/bundle.sh" "$@" >"$work/output" 2>&1; }
expect_output() { grep -q -- "$1" "$work/output" || wrong "nothing printed matches '$1'"; }

# make_build NATIVE: a build folder whose programs print their name, their first word and what libgreet says.
make_build() {
  rm -rf "$work/build" "$work/out"*
  mkdir -p "$work/build/tests"
  printf 'OWT_GPUS:INTERNAL=90a (Hopper)\nOWT_NATIVE:BOOL=%s\n' "$1" >"$work/build/CMakeCache.txt"
  cp "$work/program" "$work/build/owt"
  cp "$work/program" "$work/build/tests/core_test"
  cp "$work/program" "$work/build/tests/tools_test"
}

cat >"$work/greet.cpp" <<'END'
#include <string>
std::string greeting() { return "hello"; }
END
cat >"$work/program.cpp" <<'END'
#include <iostream>
#include <string>
std::string greeting();
int main(int, char** words) { std::cout << greeting() << ' ' << words[1] << '\n'; }
END
mkdir "$work/libraries"
c++ -shared -fPIC -o "$work/libraries/libgreet.so" "$work/greet.cpp"
c++ -o "$work/program" "$work/program.cpp" -L"$work/libraries" -lgreet
export LD_LIBRARY_PATH=$work/libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

begin "a bundle runs with the libraries it has, from any place"
make_build OFF
bundle "$work/build" "$work/out" || wrong "it ended with $?"
mv "$work/out" "$work/elsewhere"
mv "$work/libraries" "$work/gone"
for program in owt core_test; do
  [ "$("$work/elsewhere/bin/$program" 'two words')" = "hello two words" ] || wrong "$program does not run"
done
mv "$work/gone" "$work/libraries"
passed

begin "it has libstdc++, and no part of the C library"
[ -e "$work/elsewhere/lib/libstdc++.so.6" ] || wrong "no libstdc++"
for name in libc.so.6 libm.so.6 ld-linux-x86-64.so.2; do
  [ ! -e "$work/elsewhere/lib/$name" ] || wrong "$name is in it"
done
passed

begin "the check, its tools and the configurations are in it, and no test that needs the build"
for name in tools/gpu_check.sh tools/bench/gpu_compare.py configs/quickstart.toml configs/models/alexnet_owt.toml; do
  [ -s "$work/elsewhere/$name" ] || wrong "$name is missing"
done
[ ! -e "$work/elsewhere/bin/tools_test" ] || wrong "tools_test is in it"
grep -q 'GPUs: 90a (Hopper)' "$work/elsewhere/about.txt" || wrong "about.txt does not say which GPUs it is for"
passed

begin "an archive holds one folder"
make_build OFF
bundle "$work/build" "$work/out.tar.gz" || wrong "it ended with $?"
tar -tzf "$work/out.tar.gz" >"$work/list"
grep -qx 'owt-bundle/bin/owt' "$work/list" || wrong "owt-bundle/bin/owt is missing"
! grep -qv '^owt-bundle/' "$work/list" || wrong "something lies outside owt-bundle/"
expect_output 'MiB'
passed

begin "a build for this processor is refused, with the way to make another"
make_build ON
! bundle "$work/build" "$work/out" || wrong "it was taken"
expect_output 'OWT_NATIVE=OFF'
[ ! -e "$work/out" ] || wrong "it left something behind"
passed

begin "with --native it is taken"
bundle --native "$work/build" "$work/out" || wrong "it ended with $?"
passed

begin "nothing is written over"
! bundle --native "$work/build" "$work/out" || wrong "it was"
expect_output 'there already'
passed

begin "a folder without a build is refused"
mkdir "$work/empty"
! bundle "$work/empty" "$work/out2" || wrong "it was taken"
expect_output 'no build folder'
passed
