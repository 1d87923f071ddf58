# What Debian and Ubuntu call the packages that owt needs, and how to install those that are missing.
# Sourced by tools/quickstart.sh and tools/test.sh.

build_packages=(g++ cmake ninja-build pkg-config libdnnl-dev libspdlog-dev libfmt-dev libtomlplusplus-dev
                nlohmann-json3-dev librandom123-dev libxxhash-dev libarchive-dev libjpeg-dev zlib1g-dev
                libpng-dev libtiff-dev libwebp-dev libopencv-core-dev libopencv-imgproc-dev ocl-icd-opencl-dev
                libboost-program-options-dev
                libonnx-dev libprotobuf-dev
                libopenmpi-dev openmpi-bin)
test_packages=(libgtest-dev libgmock-dev libopencv-dnn-dev clang-format-14 clang-14 libclang-rt-14-dev ca-certificates curl python3)

# Prints those of the packages that are not installed.
missing_packages() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || echo "$package"
  done
}

# install_packages PACKAGE...: installs what is missing, and says so; does nothing where all is there.
install_packages() {
  local missing as_root=()
  mapfile -t missing < <(missing_packages "$@")
  [ "${#missing[@]}" -gt 0 ] || return 0
  if ! command -v apt-get >/dev/null; then
    echo "error: there is no apt-get here; install by other means what Debian calls: ${missing[*]}" >&2
    return 1
  fi
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "error: packages are missing, and neither root nor sudo is at hand to install them. As root, run:" >&2
      echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  echo "Installing with ${as_root[*]:+${as_root[*]} }apt-get: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq || echo "The package lists could not be renewed; trying with those at hand" >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}
