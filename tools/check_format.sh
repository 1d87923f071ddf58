#!/usr/bin/env bash
# Checks that all C++ and CUDA files have the format of clang-format 14 with .clang-format. Also checks that no comment
# line has more than 120 columns, in these files and in recipes, scripts and CMake files.
#
#   usage: tools/check_format.sh      (to reformat a file: clang-format-14 -i FILE)
#
# Prints the wrong places and exits 1 if there are any. Only version 14 is used, because other versions format
# differently. On a system without a package of it the check is skipped, and a line reports this.
set -euo pipefail

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
  exit 0
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."

formatter=
for name in clang-format-14 clang-format; do
  if "$name" --version 2>/dev/null | grep -q 'version 14\.'; then
    formatter=$name
    break
  fi
done
source tools/packages.sh
if [ -z "$formatter" ] && [[ " ${test_packages[*]} " != *" clang-format-14 "* ]]; then
  echo "check_format: skipped: this system has no package clang-format-14, and other versions write other things"
  exit 0
fi
if [ -z "$formatter" ]; then
  echo "check_format: error: clang-format 14 is not installed; apt-get install clang-format-14" >&2
  exit 1
fi

find src layers data tools tests \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z |
  xargs -0 "$formatter" --dry-run -Werror --style=file || {
  echo "check_format: error: see above; $formatter -i FILE puts a file right" >&2
  exit 1
}
if LC_ALL=C.UTF-8 grep -rnE '^.{121,}' --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' \
    --include='*.toml' --include='*.sh' --include='*.py' --include='*.cmake' --include=CMakeLists.txt \
    CMakeLists.txt src layers data tools tests configs | grep -E '^[^:]+:[0-9]+: *(//|#[ !])'; then
  echo "check_format: error: comments of more than 120 columns; see above" >&2
  exit 1
fi
