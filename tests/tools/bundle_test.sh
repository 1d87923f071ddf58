#!/usr/bin/env bash
# Tests what tools/bundle.sh packs and refuses, on small builds with a program and a library. Also tests that a bundle
# of the given program's build runs where there is only a shell and the C library.
#
#   usage: bundle_test.sh PROGRAM
#
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

# make_build NATIVE: a build folder whose programs print their name, their first argument and libgreet's text.
make_build() {
  rm -rf "$work/build" "$work/out"*
  mkdir -p "$work/build/tests"
  printf 'OWT_GPUS:INTERNAL=90a (Hopper)\nOWT_NATIVE:BOOL=%s\nOWT_LEFT_OUT:INTERNAL=export as ONNX\n' "$1" \
    >"$work/build/CMakeCache.txt"
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
for name in tools/gpu_check.sh tools/bench/gpu_check.py docs/gpu.md configs/models/vgg16.toml; do
  [ -s "$work/elsewhere/$name" ] || wrong "$name is missing"
done
[ ! -e "$work/elsewhere/bin/tools_test" ] || wrong "tools_test is in it"
grep -q 'GPUs: 90a (Hopper)' "$work/elsewhere/about.txt" || wrong "about.txt does not say which GPUs it is for"
grep -q '^left out: export as ONNX; ' "$work/elsewhere/about.txt" || wrong "about.txt does not say what is left out"
passed

begin "an archive holds one folder, and the command says what is left out"
make_build OFF
bundle "$work/build" "$work/out.tar.gz" || wrong "it ended with $?"
tar -tzf "$work/out.tar.gz" >"$work/list"
grep -qx 'owt-bundle/bin/owt' "$work/list" || wrong "owt-bundle/bin/owt is missing"
! grep -qv '^owt-bundle/' "$work/list" || wrong "something lies outside owt-bundle/"
expect_output 'MiB'
expect_output '^left out: export as ONNX; '
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

begin "without a build folder it makes the portable build first"
mkdir "$work/bin"
printf '#!/bin/sh\necho "cmake $*" >>"%s"\n[ "$1" = --preset ]\n' "$work/calls" >"$work/bin/cmake"
chmod +x "$work/bin/cmake"
! PATH=$work/bin:$PATH bundle "$work/out2" || wrong "it goes on with a build that failed"
printf 'cmake --preset portable\ncmake --build --preset portable\n' | cmp -s - "$work/calls" ||
  wrong "the calls of cmake were: $(cat "$work/calls")"
expect_output 'does not build'
passed

begin "a bundle of this build trains and passes tests where there is a shell and the C library only"
if ! PATH=$PATH:/usr/sbin unshare --map-root-user chroot / true 2>/dev/null; then
  echo "skipped: $case_name: this machine allows no chroot"
  exit 0
fi
bundle --native "$(dirname "$1")" "$work/bare" || wrong "it ended with $?"
mkdir -p "$work/bare/tmp"
for file in /bin/sh $(ldd "$work/bare/libexec/owt" "$(readlink -f /bin/sh)" |
  grep -oE '/[^ ]*/(ld-linux|libc|libm|libmvec|libpthread|libdl|librt|libutil|libresolv|libanl)[-.][^ ]*' | sort -u); do
  mkdir -p "$work/bare$(dirname "$file")"
  cp -L "$file" "$work/bare$file"
done
inside() {
  env -i PATH=/usr/sbin:/usr/bin:/bin OMP_WAIT_POLICY=PASSIVE unshare --map-root-user chroot "$work/bare" "$@" \
    >"$work/output" 2>&1
}
inside /bin/owt --version || wrong "it does not start"
inside /bin/owt devices || wrong "it does not look for devices"
expect_output '^cpu '
inside /bin/owt train /configs/quickstart.toml --device cpu --steps 2 --set data.format=synthetic --set data.batch=8 \
  --set data.train_images=100 --set data.test_images=50 --out /tmp/run || wrong "it does not train"
[ -s "$work/bare/tmp/run/metrics.jsonl" ] || wrong "no metrics.jsonl"
for program in "$work"/bare/libexec/*_test; do
  [ "${program##*/}" != cudnn_test ] || continue  # asks cuDNN, which stays out
  inside "/bin/${program##*/}" --gtest_filter='*Shape*:*Relu*' || wrong "${program##*/} fails"
done
expect_output 'PASSED'
passed
