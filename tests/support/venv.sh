# Makes Python environments for tests.
# shellcheck shell=bash disable=SC2034
#
#   make_venv FOLDER    makes one; "${pip[@]}" is pip for it

make_venv() {
  # An environment with its own pip takes 5 s, nearly all of them for pip.
  if python3 -c 'import pip, sys; sys.exit([*map(int, pip.__version__.split(".")[:2])] < [22, 3])' 2>/dev/null; then
    python3 -m venv --without-pip "$1" || return
    pip=(python3 -m pip --python "$1/bin/python")
  else
    python3 -m venv "$1" || return
    pip=("$1/bin/pip")
  fi
}
