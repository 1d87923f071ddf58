#!/usr/bin/env bash
# Tries owt as a new user would, on a fresh Debian: makes a root with debootstrap, clones the last commit of this
# repository into it and runs the README's two commands there, tools/quickstart.sh and tools/test.sh.
#
#   usage: tools/test_in_root.sh [OPTION]... SUITE       SUITE: trixie (Debian 13), bookworm (Debian 12) ...
#
#   --short         instead of tools/test.sh: the tests of src/core, layers and the processes; a few minutes
#   --deb FILE      instead of both: installs this package of owt with apt and tries its contents; a proof only in a
#                   root without other packages that it depends on
#   --wheel FILE    instead of both: installs this wheel of owt (tools/wheel.sh) with pip and tries the program
#   --root FOLDER   make the root in FOLDER and keep it; an existing one is used again, with its builds
#   --ccache FOLDER a ccache cache to share with the root
#   --mirror URL    source of Debian's packages (default: http://deb.debian.org/debian)
#
# Needs root, debootstrap and 5 GB of disk. Prints how long each part took. Exits with the status of the first part that
# fails, and with 77 if no root can be made or, under --short, no packages can be installed. The mounts are in a
# separate namespace: they and all processes inside disappear however this script ends.
set -euo pipefail

script=$(realpath "${BASH_SOURCE[0]}")
source_root=$(dirname "$(dirname "$script")")
usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$script"; }
stop() {  # stop STATUS MESSAGE
  echo "test_in_root: error: $2" >&2
  exit "$1"
}

# --- inside: a shell in the root, in the clone ---
if [ "${1:-}" = --inside ]; then
  cd /opt
  begin=$SECONDS
  part() {  # part NAME COMMAND...
    local name=$1
    shift
    printf '\n==== %s\n' "$name"
    "$@" || {
      local status=$?
      echo "test_in_root: error: \"$name\" failed (status $status)" >&2
      exit "$status"
    }
    times+=("$(printf '%5d s  %s' $((SECONDS - begin)) "$name")")
    begin=$SECONDS
  }
  # Not mpi/failures: Open MPI 5's mpirun gives ranks half a second to report a lost rank, which a busy machine may
  # exceed. Not processes_test: it failed once without an error of owt, for an unknown reason.
  short_tests() {
    cmake --preset release -DOWT_TESTS=ON &&
      cmake --build build --parallel "$(nproc)" --target owt core_test layers_test processes_test &&
      ctest --test-dir build --parallel 2 --output-on-failure --tests-regex '^(core|layers)(/|$)|^mpi/[0-9]'
  }
  install_deb() { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq /opt/owt.deb; }
  try_deb() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    rm -rf /opt/try && mkdir /opt/try && cd /opt/try &&
      owt --version && owt recipes && owt devices &&
      owt prepare synthetic data --train 2000 --test 500 &&
      owt train quickstart --data data --out run --steps 40 &&
      mpirun -np 2 owt train quickstart --data data --out run --resume auto --steps 60 &&
      owt eval run/config.toml --data data &&
      ls -l /usr/share/man/man1/owt.1 /usr/share/man/man1/owt-train.1 /usr/share/bash-completion/completions/owt
  }
  install_wheel() {
    sed -i '/ubuntu/s/ main$/ main universe/' /etc/apt/sources.list  # where Ubuntu has python3-venv
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv &&
      python3 -m venv /opt/venv && /opt/venv/bin/pip install --no-index --force-reinstall /opt/wheel/*.whl
  }
  try_watch() {
    owt watch run --port 8765 &
    python -c 'import time, urllib.request
for attempt in range(100):
    try:
        print(len(urllib.request.urlopen("http://127.0.0.1:8765/").read()), "bytes of a page")
        break
    except OSError:
        time.sleep(0.1)
else:
    raise SystemExit("owt watch does not answer")' || return
    kill -INT $! && wait $!
  }
  try_wheel() {
    PATH=/opt/venv/bin:$PATH
    rm -rf /opt/try && mkdir /opt/try && cd /opt/try &&
      owt --version && owt recipes && owt devices && python -m owt plan alexnet_owt --workers 4 --gpu H200 &&
      owt prepare synthetic photos --photos --train 20 --test 10 &&
      time owt train quickstart --out run &&
      owt eval run | tee accuracy && grep -E 'top-1 (9[5-9]\.|100)' accuracy >/dev/null &&
      owt export run --onnx run.onnx && owt report run &&
      owt predict run photos/val/disc/*.jpg && try_watch
  }
  times=()
  if [ "$2" = wheel ]; then
    part "installation" install_wheel
    part "what is in the wheel" try_wheel
  elif [ "$2" = deb ]; then
    part "installation" install_deb
    part "what is in the package" try_deb
  else
    cd owt
    if [ "$2" = short ]; then  # a mirror that does not answer is not a failure of owt
      (source tools/packages.sh && install_packages "${build_packages[@]}" "${test_packages[@]}") || exit 77
    fi
    part "tools/quickstart.sh" tools/quickstart.sh
    if [ "$2" = short ]; then part "a part of the tests" short_tests; else part "tools/test.sh" tools/test.sh; fi
  fi
  printf '\nAll passed on %s.\n' "$(. /etc/os-release && echo "$PRETTY_NAME")"
  printf '%s\n' "${times[@]}"
  exit 0
fi

form=full file='' folder='' ccache='' mirror=http://deb.debian.org/debian suite=''
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --short) form=short ;;
    --root | --ccache | --mirror | --deb | --wheel)
      [ $# -gt 1 ] || stop 2 "$1 wants a value; --help tells more"
      case $1 in --root) folder=$2 ;; --ccache) ccache=$2 ;; --mirror) mirror=$2 ;; --deb | --wheel) form=${1#--} file=$2 ;; esac
      shift
      ;;
    -*) stop 2 "no option $1; --help lists them" ;;
    *)
      [ -z "$suite" ] || stop 2 "one suite at a time, not $suite and $1"
      suite=$1
      ;;
  esac
  shift
done
[ -n "$suite" ] || stop 2 "which suite? trixie or bookworm, say; --help tells more"
[ "$(id -u)" = 0 ] || stop 77 "debootstrap and chroot need root; run it as root or with sudo"
for tool in debootstrap unshare git; do
  command -v "$tool" >/dev/null || stop 77 "there is no $tool here; install the package of this name (unshare: util-linux)"
done
unshare --mount --pid --fork true || stop 77 "this machine allows no name spaces of mounts and processes"
[ -z "$ccache" ] || [ -d "$ccache" ] || stop 1 "--ccache $ccache is no folder"
[ -z "$file" ] || [ -f "$file" ] || stop 1 "there is no package $file; cpack -G DEB or tools/wheel.sh makes one"

kept=true
if [ -z "$folder" ]; then
  kept=false
  folder=$(mktemp -d)
fi
inside=
work=$(mktemp -d)
clean_up() {
  rm -rf "$work"
  if [ -n "$inside" ]; then kill -KILL "$inside" 2>/dev/null && wait "$inside" 2>/dev/null || true; fi
  "$kept" || rm -rf --one-file-system "$folder"
}
trap clean_up EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

if [ ! -e "$folder/etc/debian_version" ]; then
  echo "== $suite into $folder"
  debootstrap --variant=minbase --include=ca-certificates "$suite" "$folder" "$mirror" >"$work/log" 2>&1 || {
    tail -n 5 "$work/log" >&2
    stop 77 "debootstrap could not make $suite in $folder; see above"
  }
fi
if [ "$form" = deb ]; then
  cp "$file" "$folder/opt/owt.deb"
elif [ "$form" = wheel ]; then
  rm -rf "$folder/opt/wheel"
  mkdir "$folder/opt/wheel"
  cp "$file" "$folder/opt/wheel/"  # its name says what is in it
else  # a commit, as a new user gets it; uncommitted changes are not included
  tree=$folder/opt/owt
  [ -d "$tree/.git" ] || git init -q "$tree"
  git -C "$tree" fetch -q "$source_root" HEAD && git -C "$tree" checkout -q -f FETCH_HEAD
  echo "== $(git -C "$tree" log -1 --format='commit %h, %s')"
fi
# This script may be newer than the commit.
cp "$script" "$folder/opt/test_in_root.sh"

cat >"$work/inside" <<'END'
set -e
folder=$1 ccache=$2 form=$3
mount --bind "$folder" "$folder"  # for tests that make namespaces, whose / must be a mount
mount -t proc proc "$folder/proc"
mount --rbind /sys "$folder/sys"
mount --rbind /dev "$folder/dev"
mount -t tmpfs tmpfs "$folder/dev/shm"
cp -L /etc/resolv.conf "$folder/etc/resolv.conf"
launcher=()
if [ -n "$ccache" ]; then
  mkdir -p "$folder/var/cache/ccache"
  mount --bind "$ccache" "$folder/var/cache/ccache"
  chroot "$folder" env DEBIAN_FRONTEND=noninteractive bash -c 'command -v ccache >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends ccache; }'
  launcher=(CCACHE_DIR=/var/cache/ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
exec chroot "$folder" /usr/bin/env -i HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" CI="${CI:-}" "${launcher[@]}" \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash /opt/test_in_root.sh --inside "$form"
END
unshare --mount --propagation private --pid --fork --kill-child bash "$work/inside" "$folder" "$ccache" "$form" &
inside=$!
status=0
wait "$inside" || status=$?
inside=
exit "$status"
