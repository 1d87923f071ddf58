#!/usr/bin/env bash
# Downloads CIFAR-10 (binary version, 163 MB) and unpacks it into DIR/cifar-10-batches-bin.
#
#   usage: tools/fetch_cifar10.sh DIR
#
# If the download was interrupted, running the script again resumes it. An existing data set is left alone.
# OWT_CIFAR10_URL and OWT_CIFAR10_MD5 name another source of the archive, e.g. a mirror.
set -euo pipefail

url=${OWT_CIFAR10_URL:-https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz}
md5=${OWT_CIFAR10_MD5:-c32a1d4ab5d03f1284b67883e8d87530}
folder=cifar-10-batches-bin
files=(data_batch_1.bin data_batch_2.bin data_batch_3.bin data_batch_4.bin data_batch_5.bin test_batch.bin
       batches.meta.txt)

fail() {
  echo "fetch_cifar10: error: $*" >&2
  exit 1
}

has_all_files() {
  local file
  for file in "${files[@]}"; do [ -s "$1/$file" ] || return 1; done
}

# Handles an existing target: exits if it is complete, and fails if it is not.
check_target() {
  [ -e "$target" ] || return 0
  has_all_files "$target" ||
    fail "$target is there but incomplete (wanted: ${files[*]}); move it away and run this again"
  grep -qx $'airplane\r\\{0,1\\}' "$target/batches.meta.txt" ||
    fail "$target holds another data set (first class: $(head -n 1 "$target/batches.meta.txt")); choose another folder"
  echo "CIFAR-10 is already in $target"
  exit 0
}

checksum() { md5sum "$1" | cut -d ' ' -f 1; }

explain() {  # curl's exit status
  case $1 in
    5 | 6) echo "the name of the server was not found; is there a network (or a proxy to set)?" ;;
    7) echo "nothing answers there; is there a network (or a proxy to set)?" ;;
    22) echo "the server refused it" ;;
    23) echo "cannot write $part; is the disk full?" ;;
    28) echo "the server is too slow or silent" ;;
    18 | 56) echo "the connection broke off" ;;
    35 | 60 | 77) echo "no secure connection; are the certificates there (apt-get install ca-certificates)?" ;;
    *) echo "curl ended with status $1" ;;
  esac
}

# One request. If there is a partial file, it asks for the rest only.
request() {
  local progress=(--silent --show-error)
  [ -t 2 ] && progress=(--progress-bar)
  curl --fail --location "${progress[@]}" --connect-timeout 20 --speed-limit 1 --speed-time 60 \
    --continue-at - --output "$part" "$url"
}

is_the_archive() { [ "$(checksum "$part")" = "$md5" ]; }

# Tries to complete a partial file. Deletes it if that fails: the server may not support ranges, or the file may not be
# the beginning of this archive.
resume() {
  [ -s "$part" ] || return 0
  is_the_archive && return 0
  echo "Going on with $part ($(wc -c <"$part") bytes are there)"
  local status=0
  request || status=$?
  case $status in
    0) is_the_archive && return 0 ;;
    22 | 33) ;;
    *) give_up "$status" ;;
  esac
  echo "That cannot be completed; starting anew"
  rm -f "$part"
}

download() {
  resume
  [ -s "$part" ] && return 0
  echo "Downloading $url"
  local status=0
  request || status=$?
  [ "$status" = 0 ] || give_up "$status"
}

give_up() {
  fail "cannot download $url: $(explain "$1"). Run this again to go on, or put the archive at $part yourself"
}

verify() {
  is_the_archive && return 0
  local found
  found=$(checksum "$part")
  rm -f "$part"
  fail "the archive from $url has MD5 $found, wanted $md5; it was removed. Run this again"
}

unpack() {
  staging=$(mktemp -d "$dir/.fetch_cifar10.XXXXXX") || fail "cannot write to $dir"
  trap 'rm -rf "$staging"' EXIT
  tar -xzf "$part" -C "$staging" --no-same-owner || fail "cannot unpack $part into $dir; is the disk full?"
  has_all_files "$staging/$folder" || fail "$part does not hold $folder with ${files[*]}"
  mv "$staging/$folder" "$target"
  rm -f "$part"
}

[ $# = 1 ] && [ -n "$1" ] && [ "${1#-}" = "$1" ] || {
  echo "usage: tools/fetch_cifar10.sh DIR    (makes DIR/$folder)" >&2
  exit 2
}
dir=$1
target=$dir/$folder
part=$dir/cifar-10-binary.tar.gz.part
check_target
for program in curl md5sum tar; do
  command -v "$program" >/dev/null || fail "'$program' is not installed; apt-get install curl coreutils tar"
done
mkdir -p "$dir" || fail "cannot make the folder $dir"
[ -w "$dir" ] || fail "cannot write to $dir; choose another folder"
download
verify
unpack
echo "CIFAR-10 is in $target"
