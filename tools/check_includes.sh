#!/usr/bin/env bash
# Checks that every include follows the allowed directions between folders and the table of third-party headers below.
#
#   usage: tools/check_includes.sh [ROOT]     ROOT: the tree to check; default: the tree of this script
#
# Prints each wrong line as FILE:LINE: with the reason; exits 1 if there are any.
set -euo pipefail

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
  exit 0
fi
root=${1:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
cd "$root"

# FOLDER | other folders that it may include besides src/core and src/system | prefixes of third-party headers
# tests/X may include everything that X may include, tests/support and GoogleTest. Files *_gpu_test.cpp may include the
# simulated GPU. tests/support, tests/tools, tests/fuzz and tests/device_code may include all folders.
table='
src/system          |                                                                                                                                                                                           | cpuid.h toml++/ spdlog/ xxhash.h
src/core            |                                                                                                                                                                                           | dnnl immintrin.h Random123/ omp.h cublasLt.h nvtx3/
src/comm            |                                                                                                                                                                                           | nccl.h mpi.h
src/roster          | src/comm                                                                                                                                                                                  |
data/jpeg           |                                                                                                                                                                                           | jpeglib.h jerror.h
data/photos         | data/jpeg                                                                                                                                                                                 | opencv2/ png.h tiffio.h webp/
data                | data/photos data/jpeg                                                                                                                                                                     | nlohmann/ opencv2/
data/prepare        | data data/photos data/jpeg                                                                                                                                                                | archive nlohmann/
layers/base         |                                                                                                                                                                                           |
layers/conv_cpu     | layers/base                                                                                                                                                                               | immintrin.h
layers/gpu          | layers/base                                                                                                                                                                               | cudnn
layers/loss         | layers/base layers/gpu                                                                                                                                                                    |
layers              | layers/base layers/conv_cpu layers/gpu layers/loss                                                                                                                                        | cudnn immintrin.h
src/net             | layers/base layers/loss layers                                                                                                                                                            |
src/plan            | src/net src/comm layers/base layers/loss layers                                                                                                                                           |
src/plan/strategies | src/plan src/net src/comm layers/base layers/loss layers                                                                                                                                  |
src/parallel        | src/plan src/net src/comm data layers/base layers/conv_cpu layers/loss layers                                                                                                             |
src/server          | src/parallel src/plan src/comm layers/base                                                                                                                                                |
src/predict         | src/server src/parallel src/plan src/net src/comm layers/base layers/loss layers                                                                                                          |
src/files           |                                                                                                                                                                                           | nlohmann/
src/mirror          | src/files src/parallel src/plan src/comm layers/base                                                                                                                                        |
src/recipe          | src/files src/parallel src/plan src/net src/comm data layers/base layers/conv_cpu layers/loss layers                                                                                      |
src/train           | src/mirror src/roster src/recipe src/files src/predict src/server src/parallel src/plan src/net src/comm data layers/base layers/conv_cpu layers/loss layers                              | nlohmann/
src/simulate        | src/mirror src/train src/recipe src/files src/predict src/server src/parallel src/plan src/net src/comm data layers/base layers/loss layers                                               |
src/report          | src/mirror src/train src/recipe src/files src/predict src/parallel src/plan src/net src/comm data layers/base layers/loss layers                                                          |
src/report/pages    | src/mirror src/report src/train src/recipe src/files src/predict src/plan src/net src/comm data data/photos layers/base                                                                   | nlohmann/
src/commands        | src/mirror src/roster src/report src/simulate src/train src/recipe src/files src/predict src/parallel src/plan src/net src/comm data data/photos layers/base layers/loss layers           | boost/ nlohmann/
src/onnx            | src/commands src/train src/recipe src/files src/net src/comm data layers/base layers/loss layers                                                                                          | onnx/
tools/bench         | data data/photos data/jpeg layers/base layers/conv_cpu layers src/net                                                                                                                     | mpi.h jpeglib.h opencv2/
tools/package       |                                                                                                                                                                                           |
tools               | src/mirror src/roster src/onnx src/commands src/report/pages src/report src/simulate src/train src/recipe src/files src/predict src/parallel src/plan src/net src/comm data data/prepare data/photos layers/base layers/loss layers|
'
# Headers of C and of the system, which are not third-party; and the headers for kernels.
system='arpa/ dlfcn.h fcntl.h fnmatch.h ifaddrs.h linux/ net/ netdb.h netinet/ poll.h sched.h signal.h stdlib.h string.h sys/ unistd.h'
kernels='cuda_runtime.h cuda_bf16.h'

folders=()
for folder in src layers data tools tests; do [ ! -d "$folder" ] || folders+=("$folder"); done

find "${folders[@]}" \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z |
  xargs -0 -r awk -v table="$table" -v system_headers="$system" -v kernel_headers="$kernels" '
    BEGIN {
      rows = split(table, lines, "\n")
      for (i = 1; i <= rows; ++i) {
        if (split(lines[i], column, "|") != 3) continue
        name = column[1]; gsub(/ /, "", name)
        known[name] = 1
        sees[name] = " " name " src/system " (name == "src/system" ? "" : "src/core ") column[2] " "
        uses[name] = column[3] " " system_headers
        everything = everything " " name
      }
      for (name in known) {
        test = name; sub(/^src\//, "", test); test = "tests/" test
        known[test] = 1
        sees[test] = sees[name] "tests/support " test " "
        uses[test] = uses[name] " gtest/ gmock/ nlohmann/"
      }
      sees["tests/system"] = sees["tests/system"] "src/core "
      # Some read the plans that cuDNN chose.
      sees["tests/net"] = sees["tests/net"] "layers/gpu "
      sees["tests/parallel"] = sees["tests/parallel"] "layers/gpu "
      uses["tests/onnx"] = uses["tests/onnx"] " opencv2/"  # reads exported files
      # The simulated GPU replaces the CUDA libraries.
      known["tests/simulated_gpu"] = 1
      sees["tests/simulated_gpu"] = everything " tests/support tests/simulated_gpu "
      uses["tests/simulated_gpu"] = system_headers " math.h cxxabi.h elf.h link.h ucontext.h sanitizer/ " kernel_headers " cublasLt.h cudnn nccl.h nlohmann/ gtest/ gmock/"
      split("tests/support tests/tools tests/fuzz tests/device_code", above)
      for (i in above) {
        name = above[i]
        known[name] = 1
        sees[name] = everything " tests/support " name " "
        uses[name] = system_headers " nlohmann/ gtest/ gmock/"
      }
      uses["tests/support"] = uses["tests/support"] " jpeglib.h png.h tiffio.h webp/ zlib.h"  # makes photos
      uses["tests/fuzz"] = uses["tests/fuzz"] " zlib.h"
      uses["tests/device_code"] = uses["tests/device_code"] " cxxabi.h"
    }
    function folder_of(path) { sub(/\/[^\/]*$/, "", path); return path }
    function wrong(why) { print FILENAME ":" FNR ": " why; ++errors }
    function starts_with_one(header, prefixes,   list, count, k) {
      count = split(prefixes, list, " ")
      for (k = 1; k <= count; ++k) if (index(header, list[k]) == 1) return 1
      return 0
    }
    !/^[ \t]*#[ \t]*include/ { next }
    {
      folder = folder_of(FILENAME)
      sub(/^\.\//, "", folder)
      if (!(folder in known)) { wrong("folder " folder " is not in the table of tools/check_includes.sh"); next }
      if (match($0, /"[^"]*"/)) {
        header = substr($0, RSTART + 1, RLENGTH - 2)
        from = folder_of(header)
        simulated = FILENAME ~ /_gpu_test\.cpp$/ ? " tests/simulated_gpu " : ""
        if (from == header) wrong("\"" header "\" is not written from the root of the repository")
        else if (index(sees[folder] simulated, " " from " ") == 0) wrong(folder " may not include \"" header "\"")
      } else if (match($0, /<[^>]*>/)) {
        header = substr($0, RSTART + 1, RLENGTH - 2)
        allowed = uses[folder] (folder ~ /^tools/ ? "" : " " kernel_headers)
        if (header ~ /[.\/]/ && !starts_with_one(header, allowed)) wrong(folder " may not include <" header ">")
      } else wrong("cannot read this include")
    }
    END { exit errors > 0 }
  ' || {
  echo "check_includes: error: includes against the direction of the folders (table in tools/check_includes.sh)" >&2
  exit 1
}
