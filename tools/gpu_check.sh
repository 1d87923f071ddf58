#!/usr/bin/env bash
# All checks for a machine with a GPU, in three stages. Runs in the repository after a build, or on another machine in a
# bundle of tools/bundle.sh. docs/gpu.md explains the procedure and the results.
#
#   usage: tools/gpu_check.sh STAGE [--out DIR] [--parts NAME,...] [--limit SECONDS] [--build DIR] [--data DIR]
#                             [--cpu-dry-run]
#
# Every stage ends within nine and a half minutes. Its parts, in the order in which they run:
#   1   devices     owt devices, nvidia-smi, and cuDNN's description of the GPU (device.json, for tests without a GPU)
#       smoke       20 steps in fp32, tf32 and bf16, with and without recorded graphs, compared with the CPU
#       owt         the speed of cifar10_quick, AlexNet, VGG16 and ResNet; the first numbers appear in two minutes
#       tests       all tests on the GPU, several programs at a time
#       eager       PyTorch's speed, eager and captured in a CUDA graph
#       compiled    PyTorch's speed, compiled; two cases
#   2   again       the tests that failed or were not reached
#       nccl        collectives, messages and steps of two processes that share the GPU, through NCCL's sockets
#       variants    owt with one setting changed, alternating with the default
#       profile     the kernels of a step, by ncu or nsys; if neither is installed, the times of the layers
#       compiled    PyTorch compiled, the remaining cases
#   3   ranks       the same losses with 1, 2 and 4 ranks on one GPU under every strategy
#       accuracy    CIFAR-10 in the folder of --data to 75 %, or drawn images to 99.9 %, in fp32 and bf16
#       sanitizers  compute-sanitizer's racecheck, memcheck, synccheck and initcheck over owt's kernels in tests
#       speed       every case measured three times by owt and uncompiled PyTorch, and the final table
#       others      the tests that need no GPU
#
#   --out DIR         folder for results, which later stages read: give all three stages the same (gpu-check)
#   --parts NAME,...  run these parts only
#   --limit SECONDS   time limit of the stage (550); parts that do not fit are skipped
#   --build DIR       the build in the repository (build)
#   --cpu-dry-run     run everything that works on the CPU, in tiny sizes, to check this script
#
# Prints PASS, FAIL or SKIP for each part, and writes every result to DIR/results.jsonl immediately. Exits 1 if a part
# failed, 2 on a wrong command line. $PYTHON, default python3, must be 3.11 or newer and have PyTorch. CUDA's libraries
# come from the loader's path, the packages nvidia-* of that Python, or $CUDA_HOME (/usr/local/cuda).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}

case ${1:-} in
  --help | -h)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    exit
    ;;
esac
"$python" -ISc 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
  echo "gpu_check: error: found no Python 3.11 or newer as '$python'; name one, the one with PyTorch, in \$PYTHON" >&2
  exit 1
}
exec "$python" "$root/tools/bench/gpu_check.py" "$@"
