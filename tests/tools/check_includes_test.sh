#!/usr/bin/env bash
# Tests tools/check_includes.sh on small trees. Prints each case; exits 1 at the first that fails.
set -euo pipefail

script=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/tools/check_includes.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

file() {  # file PATH INCLUDE...: a tree that holds this file only
  rm -rf "$work/tree"
  mkdir -p "$work/tree/$(dirname "$1")"
  local path=$work/tree/$1 header
  shift
  for header in "$@"; do echo "#include $header"; done >"$path"
}
check() { "$script" "$work/tree" >"$work/output" 2>&1; }
wrong() {
  echo "FAILED: $case_name: $*" >&2
  sed 's/^/  | /' "$work/output" >&2
  exit 1
}
expect_accepted() { check || wrong "it was rejected"; }
expect_rejected() {  # expect_rejected MESSAGE
  if check; then wrong "it was accepted"; fi
  grep -qF -- "$1" "$work/output" || wrong "its output does not say '$1'"
}
begin() { case_name=$1; }
passed() { echo "passed: $case_name"; }

begin "a folder sees itself and what lies below it"
file layers/pool.cpp '<vector>' '<sys/types.h>' '<cudnn.h>' '"layers/pool.h"' '"src/core/tensor.h"'
expect_accepted
passed

begin "a sibling is out of sight"
file layers/pool.cpp '<vector>' '"data/batch.h"'
expect_rejected 'layers/pool.cpp:2: layers may not include "data/batch.h"'
passed

begin "the direction is not reversed"
file src/core/tensor.h '"layers/base/layer.h"'
expect_rejected 'src/core/tensor.h:1: src/core may not include "layers/base/layer.h"'
passed

begin "a third-party header stays in its folder"
file src/train/trainer.cpp '<cudnn.h>'
expect_rejected 'src/train/trainer.cpp:1: src/train may not include <cudnn.h>'
# src/core/onednn.h hides the versions of oneDNN from the layers.
file layers/pool.cpp '<dnnl.hpp>'
expect_rejected 'layers/pool.cpp:1: layers may not include <dnnl.hpp>'
passed

begin "an unknown third-party header has no folder"
file src/system/log.cpp '<fancy/log.hpp>'
expect_rejected 'src/system may not include <fancy/log.hpp>'
passed

begin "includes are written from the root"
file layers/pool.cpp '"pool.h"'
expect_rejected 'not written from the root'
passed

begin "a test sees what the tested folder sees, and the test library"
file tests/layers/pool_test.cpp '<gtest/gtest.h>' '"layers/pool.h"' '"tests/support/harness.h"' '<cudnn.h>'
expect_accepted
file tests/layers/pool_test.cpp '"data/batch.h"'
expect_rejected 'tests/layers may not include "data/batch.h"'
passed

begin "only a test that is built for the simulated GPU alone sees it"
file tests/comm/nccl_gpu_test.cpp '"tests/simulated_gpu/runtime.h"' '"src/core/gpus.h"'
expect_accepted
file tests/comm/threads_test.cpp '"tests/simulated_gpu/runtime.h"'
expect_rejected 'tests/comm may not include "tests/simulated_gpu/runtime.h"'
passed

begin "a folder that the table does not know is an error"
file src/extra/a.cpp '<vector>'
expect_rejected 'folder src/extra is not in the table'
passed
