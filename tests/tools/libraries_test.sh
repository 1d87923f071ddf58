#!/usr/bin/env bash
# Tests which libraries the loader needs before owt starts: neither CUDA's libraries, which are loaded when a GPU is
# used, nor OpenCV's imgcodecs with a hundred more.
#
#   usage: libraries_test.sh OWT
set -euo pipefail

needed=$(ldd "$1")
for name in libcudnn libnccl libcublasLt libnvjpeg libopencv_imgcodecs libgdal; do
  if [[ $needed == *$name* ]]; then
    echo "FAILED: $1 needs $name to start" >&2
    exit 1
  fi
done
echo "passed: owt starts without CUDA's libraries and imgcodecs"
