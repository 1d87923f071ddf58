# The names of the Debian and Ubuntu packages that owt needs, and a function that installs missing ones.
# Sourced by tools/quickstart.sh and tools/test.sh.

# Packages of Ubuntu 22.04 and 24.04, Debian 12 and 13.
build_packages=(g++ cmake ninja-build pkg-config libdnnl-dev libspdlog-dev libfmt-dev
                nlohmann-json3-dev librandom123-dev libxxhash-dev libarchive-dev libjpeg-dev zlib1g-dev
                libpng-dev libtiff-dev libwebp-dev libopencv-core-dev libopencv-imgproc-dev ocl-icd-opencl-dev
                libboost-program-options-dev
                libonnx-dev libprotobuf-dev
                libopenmpi-dev openmpi-bin)
test_packages=(libgtest-dev libgmock-dev libopencv-dnn-dev ca-certificates curl python3 python3-venv
               iproute2 libxml2-utils)
# Packages that a system lacks or names differently. The format check needs clang-format 14; fuzzing, a part of
# tools/test.sh --all, works with any Clang.
codename=$(. "${os_release:-/etc/os-release}" && echo "${UBUNTU_CODENAME:-${VERSION_CODENAME:-}}")
case $codename in
  jammy)  # has no toml++, which cmake fetches with git; has libFuzzer in a separate package
    build_packages+=(git ca-certificates)
    test_packages+=(clang-format-14)
    fuzz_packages=(clang-14 libclang-common-14-dev)
    ;;
  noble | bookworm)
    build_packages+=(libtomlplusplus-dev)
    test_packages+=(clang-format-14)
    fuzz_packages=(clang-14 libclang-rt-14-dev)
    ;;
  *)
    build_packages+=(libtomlplusplus-dev)
    fuzz_packages=(clang libclang-rt-dev)
    ;;
esac

# The browser for looking at reports. Ubuntu has it only as a snap, which does not run in containers.
case $codename in
  jammy | noble) ;;
  *) test_packages+=(chromium-headless-shell) ;;
esac

# Prints the packages that are not installed.
missing_packages() {
  local package
  for package in "$@"; do
    # dpkg-query prints a word for each architecture of the package.
    [[ $(dpkg-query -W -f ' ${db:Status-Status} ' "$package" 2>/dev/null) == *" installed "* ]] || echo "$package"
  done
}

# install_packages PACKAGE...: installs missing packages and reports it; does nothing if none is missing.
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
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Acquire::Retries=3 --no-install-recommends \
    "${missing[@]}"
}
