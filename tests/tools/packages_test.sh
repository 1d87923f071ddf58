#!/usr/bin/env bash
# Tests install_packages of tools/packages.sh with a package manager that only records its arguments. Prints each case;
# exits 1 at the first that fails.
set -euo pipefail

packages=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/tools/packages.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

program() {  # program NAME <SCRIPT: a command that the case finds
  cat >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}
# begin NAME USER INSTALLED...: a machine with these packages, on which the user has this number
begin() {
  case_name=$1
  rm -rf "$work/bin"
  mkdir "$work/bin"
  : >"$work/calls"
  local tool
  for tool in bash cat env; do ln -s "$(command -v "$tool")" "$work/bin/$tool"; done
  program id <<<"#!$(command -v bash)
echo $2"
  program dpkg-query <<<"#!$(command -v bash)
status=1
for package in ${*:3}; do [ \"\$4\" != \$package ] || { printf '%s' \"\${3/'\${db:Status-Status}'/installed}\"; status=0; }; done
[ \$status = 0 ] || echo 'no packages found' >&2
exit \$status"
  program apt-get <<<"#!$(command -v bash)
echo \"apt-get \$*\" >>'$work/calls'"
}
wrong() {
  echo "FAILED: $case_name: $*" >&2
  sed 's/^/  | /' "$work/output" "$work/calls" >&2
  exit 1
}
install() {
  PATH=$work/bin "$(command -v bash)" -c 'set -euo pipefail; source "$0"; install_packages "$@"' "$packages" "$@" \
    >"$work/output" 2>&1
}
expect_calls() { [ "$(cat "$work/calls")" = "$1" ] || wrong "the calls are not '$1'"; }
expect_output() { grep -qF -- "$1" "$work/output" || wrong "its output does not say '$1'"; }
passed() { echo "passed: $case_name"; }

# packages_of CODENAME: all lists for a release with this name, separated by blanks
packages_of() {
  echo "VERSION_CODENAME=$1" >"$work/os-release"
  os_release=$work/os-release bash -c 'source "$0"; echo " ${build_packages[*]} ${test_packages[*]} ${fuzz_packages[*]} "' "$packages" >"$work/output"
}
expect_package() { grep -qF -- " $1 " "$work/output" || wrong "its packages lack $1"; }
expect_no_package() { if grep -qE -- " $1 " "$work/output"; then wrong "it has a package $1"; fi; }

begin "every release takes the packages that it has" 0
for release in jammy noble bookworm trixie some-later-one; do
  case_name="packages of $release"
  packages_of $release
  expect_package libdnnl-dev
  expect_package libgtest-dev
  case $release in
    jammy)
      expect_no_package 'libtomlplusplus-dev|libclang-rt-14-dev|chromium[a-z-]*'
      expect_package git
      expect_package libclang-common-14-dev
      ;;
    noble | bookworm)
      expect_package libtomlplusplus-dev
      expect_package clang-format-14
      expect_package libclang-rt-14-dev
      ;;
    *)
      expect_package libtomlplusplus-dev
      expect_no_package '[a-z-]*-14[a-z-]*'
      expect_package clang
      ;;
  esac
  case $release in
    jammy | noble) expect_no_package 'chromium[a-z-]*' ;;
    *) expect_package chromium-headless-shell ;;
  esac
  passed
done

begin "where all is there nothing is installed" 1000 g++ cmake
install g++ cmake || wrong "it failed"
expect_calls ""
passed

begin "what is installed for two architectures is there" 1000 g++ cmake cmake
install g++ cmake || wrong "it failed"
expect_calls ""
passed

begin "root installs what is missing, and only that" 0 g++
install g++ cmake ninja-build || wrong "it failed"
expect_calls "apt-get update -qq
apt-get install -y -qq -o Acquire::Retries=3 --no-install-recommends cmake ninja-build"
expect_output "Installing with apt-get: cmake ninja-build"
passed

begin "others install through sudo" 1000 g++
program sudo <<<"#!$(command -v bash)
printf 'sudo ' >>'$work/calls'
exec \"\$@\""
install g++ cmake || wrong "it failed"
expect_calls "sudo apt-get update -qq
sudo apt-get install -y -qq -o Acquire::Retries=3 --no-install-recommends cmake"
expect_output "Installing with sudo apt-get: cmake"
passed

begin "without root and sudo the command to run is named" 1000 g++
if install g++ cmake; then wrong "it succeeded"; fi
expect_calls ""
expect_output "apt-get install --no-install-recommends cmake"
passed

begin "without apt-get the packages are named" 0 g++
rm "$work/bin/apt-get"
if install g++ cmake; then wrong "it succeeded"; fi
expect_output "there is no apt-get here; install by other means what Debian calls: cmake"
passed
