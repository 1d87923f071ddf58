#!/usr/bin/env bash
# Packs a build so that it runs on another x86-64 machine: the program, the tests, configs/, tools/gpu_check.sh with
# tools/bench/*.py and docs/gpu.md, and the shared libraries that they need.
#
#   usage: tools/bundle.sh [--native] [BUILD_DIR] OUT              e.g. tools/bundle.sh owt-bundle.tar.xz
#
# Without BUILD_DIR it first makes the build: the preset `portable`, in build-portable/, for processors with AVX2 and
# GPUs from Hopper on, without MPI and ONNX. OUT is a folder to create, or an archive: .tar, .tar.gz, .tar.xz or
# .tar.zst. The other machine needs /bin/sh and a C library at least as recent as this machine's. For GPUs it also needs
# the driver, cuBLAS, cuDNN and NCCL. These are not packed: the program loads them when it uses a GPU, and PyTorch's
# copies will do. In the bundle bin/owt is the program, and tools/gpu_check.sh finds what it needs.
#
#   --native   pack a build for this machine's processor; the other machine must have all of its instructions
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }
fail() {
  echo "bundle: error: $*" >&2
  exit 1
}

native=false
words=()
for word in "$@"; do
  case $word in
    --help | -h)
      usage
      exit 0
      ;;
    --native) native=true ;;
    -*)
      echo "bundle: error: what is '$word'? tools/bundle.sh --help" >&2
      exit 2
      ;;
    *) words+=("$word") ;;
  esac
done
case ${#words[@]} in
  1) build='' out=${words[0]} ;;
  2) build=${words[0]} out=${words[1]} ;;
  *)
    usage >&2
    exit 2
    ;;
esac

make_build() {
  build=$root/build-portable
  (cd "$root" && cmake --preset portable && cmake --build --preset portable) ||
    fail "the preset portable does not build; see above"
}

option() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

check_build() {
  [ -f "$build/CMakeCache.txt" ] || fail "$build is no build folder (no CMakeCache.txt in it); build first"
  [ -x "$build/owt" ] || fail "there is no program $build/owt; build it: cmake --build $build"
  if "$native"; then return 0; fi
  case $(option OWT_NATIVE) in
    OFF | 0 | NO | FALSE | '') ;;
    *)
      fail "$build is made for the processor of this machine and may not run on another. Without a build folder
tools/bundle.sh $out makes one that does (OWT_NATIVE=OFF); or give --native if the other machine has the same processor"
      ;;
  esac
}

# Libraries that the other machine provides.
stays_out() {
  case $1 in
    ld-linux* | libc.so* | libm.so* | libmvec.so* | libpthread.so* | libdl.so* | librt.so* | libutil.so* | \
      libresolv.so* | libanl.so*) return 0 ;;
    *) return 1 ;;
  esac
}

# Copies a program without its symbols, and makes a script in bin/ that runs it with the bundled libraries.
add_program() {
  local name=${1##*/}
  strip -o "$bundle/libexec/$name" "$1"
  cat >"$bundle/bin/$name" <<'END'
#!/bin/sh
here=$(cd "${0%/*}/.." && pwd)
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$here/libexec/${0##*/}" "$@"
END
  chmod +x "$bundle/bin/$name"
}

# Adds the libraries that a program needs, from ldd's lines "NAME => PATH (ADDRESS)".
add_libraries() {
  local name arrow path rest
  while read -r name arrow path rest; do
    [ "$arrow" = "=>" ] || continue
    if stays_out "$name"; then continue; fi
    [ "$path" != not ] || fail "$1 needs $name, which is not on this machine either"
    [ -e "$bundle/lib/$name" ] || cp -L "$path" "$bundle/lib/$name"
  done < <(ldd "$1")
}

fill_bundle() {
  local program
  mkdir -p "$bundle"/{bin,libexec,lib,docs,tools/bench}
  for program in "$build/owt" "$build"/tests/*_test; do
    if [ ! -x "$program" ]; then continue; fi
    case ${program##*/} in
      tools_test) continue ;;  # runs the built program by its path
      processes_test) continue ;;  # needs several processes
      device_code_test) continue ;;  # compiles the sources
    esac
    add_program "$program"
    add_libraries "$program"
  done
  cp -R "$root/configs" "$bundle/"
  cp "$root/docs/gpu.md" "$bundle/docs/"
  cp "$root/tools/gpu_check.sh" "$bundle/tools/"
  cp "$root"/tools/bench/*.py "$bundle/tools/bench/"
  mkdir -p "$bundle/tests/support"
  cp "$root"/tests/support/*.json "$bundle/tests/support/"  # read by cudnn_test
  describe >"$bundle/about.txt"
}

left_out() {
  local parts
  parts=$(option OWT_LEFT_OUT)
  echo "left out: ${parts:+$parts; }tests of the command line and on the simulated GPU; the C library, CUDA's libraries"
}

describe() {
  echo "owt of $(date -u +%Y-%m-%d), commit $(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)"
  echo "native code: $(option OWT_NATIVE); compiler's options: $(option CMAKE_CXX_FLAGS); GPUs: $(option OWT_GPUS)"
  left_out
  echo "needs the C library $(ldd --version | sed -n '1s/.* //p') or newer"
  echo "bin/owt is the program; tools/gpu_check.sh checks all of it on a machine with a GPU"
}

size_of() { du -sk --apparent-size "$@" | awk '{ sum += $1 } END { printf "%.1f MiB", sum / 1024 }'; }

report() {
  local part
  for part in libexec lib configs tools; do printf '  %-8s %10s\n' "$part" "$(size_of "$bundle/$part")"; done
  printf '  %-8s %10s\n' "all" "$(size_of "$bundle")"
  left_out
}

case $out in
  *.tar | *.tar.gz | *.tgz | *.tar.xz | *.tar.zst) archive=true ;;
  *) archive=false ;;
esac
if [ -e "$out" ]; then fail "$out is there already; move it away or choose another name"; fi
[ -n "$build" ] || make_build
check_build
mkdir -p "$(dirname "$out")" || fail "cannot make the folder $(dirname "$out")"
work=$(mktemp -d "$(dirname "$out")/.bundle.XXXXXX") || fail "cannot write to $(dirname "$out")"
trap 'rm -rf "$work"' EXIT
bundle=$work/owt-bundle
fill_bundle
report
if "$archive"; then
  packed=$work/${out##*/}
  # The test programs share much code; a dictionary larger than each program compresses it once.
  XZ_OPT=--lzma2=preset=6,dict=128MiB \
    tar -C "$work" --sort=name --owner=0 --group=0 --auto-compress -cf "$packed" owt-bundle
  mv "$packed" "$out"
  echo "$out: $(size_of "$out")"
else
  mv "$bundle" "$out"
  echo "$out is ready"
fi
