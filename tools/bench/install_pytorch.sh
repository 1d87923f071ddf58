#!/usr/bin/env bash
# Installs the latest PyTorch from PyPI into a virtual environment, for tools/bench/compare_pytorch.py. It is a
# development aid; neither the build nor the tests need it.
#
#   usage: tools/bench/install_pytorch.sh DIR          e.g. tools/bench/install_pytorch.sh ~/pytorch
#
# pip downloads torch, numpy and their dependencies: about 3 GB on x86-64, where PyPI's wheel needs NVIDIA's libraries
# even on a machine without a GPU. DIR takes 6 GB. An existing environment in DIR is updated to the latest version.
# Needs Python 3.11 (torch.compile: also its headers and a C++ compiler).
set -euo pipefail

fail() {
  echo "install_pytorch: error: $*" >&2
  exit 1
}

if [ $# -ne 1 ] || [[ $1 == -* ]]; then
  echo "usage: tools/bench/install_pytorch.sh DIR" >&2
  exit 2
fi
dir=$1
if [ -e "$dir" ] && [ ! -x "$dir/bin/pip" ] && [ -n "$(ls -A "$dir")" ]; then
  fail "$dir is there and holds no virtual environment; name another folder, or an empty one"
fi
if [ ! -x "$dir/bin/pip" ]; then
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$(python3 --version) is too old, wanted Python 3.11"
  python3 -m venv "$dir" || fail "cannot make a virtual environment in $dir; apt-get install python3-venv"
fi
echo "installing PyTorch into $dir; about 3 GB to download where it is not there yet"
"$dir/bin/pip" install --quiet --upgrade torch numpy setuptools || fail "pip could not install torch; see above"
"$dir/bin/python" -c 'import numpy, torch; print("PyTorch", torch.__version__, "with", torch.get_num_threads(), "threads")' ||
  fail "PyTorch does not load from $dir; remove the folder and try again"
echo "compare with: $dir/bin/python tools/bench/compare_pytorch.py --owt build/owt --compile"
