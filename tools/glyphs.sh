#!/usr/bin/env bash
# Makes a set of ImageNet's size from the fonts of Debian: each class is a Han ideograph or a Hangul syllable, each
# image is its glyph in one font (docs/glyphs.md).
#
#   usage: tools/glyphs.sh WORK [--classes N] [--side PIXELS] [--faces N] [--owt PROGRAM]
#
#   --classes N     only N code points: the ones that most held-out faces have, then most faces (default: all that
#                   14 faces or more draw differently)
#   --side PIXELS   side of the square images, 16 to 1024 (default: 64)
#   --faces N       at most N training images of each class (default: all)
#   --owt PROGRAM   default: build/owt
#
# Installs missing packages. Writes grey JPEG files to WORK/images, lists of them and the data sets WORK/shards
# (training and validation images) and WORK/test (test images). tools/glyphs_held_out.txt names the faces that are held
# out. After an interruption the same command resumes. The same versions of the packages give the same bytes.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR
source "$here/packages.sh"

packages=(fonts-arphic-bkai00mp fonts-arphic-bsmi00lp fonts-arphic-gbsn00lp fonts-arphic-gkai00mp fonts-arphic-ukai
          fonts-arphic-uming fonts-babelstone-han fonts-baekmuk fonts-droid-fallback fonts-hanazono
          fonts-ipaexfont-gothic fonts-ipaexfont-mincho fonts-nanum fonts-noto-cjk fonts-noto-cjk-extra
          fonts-takao-gothic fonts-takao-mincho fonts-unfonts-core fonts-unfonts-extra fonts-vlgothic fonts-wqy-zenhei)

wrong_usage() {
  echo "glyphs: error: $1" >&2
  echo "usage: tools/glyphs.sh WORK [--classes N] [--side PIXELS] [--faces N] [--owt PROGRAM]" >&2
  exit 2
}

work='' owt=$here/../build/owt sizes=()
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h)
      sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      exit
      ;;
    --classes | --side | --faces)
      [[ ${2:-} =~ ^[1-9][0-9]{0,5}$ ]] || wrong_usage "$1 wants a number from 1, not '${2:-}'"
      [ "$1" != --side ] || { [ "$2" -ge 16 ] && [ "$2" -le 1024 ]; } || wrong_usage "--side wants 16 to 1024, not $2"
      sizes+=("$1" "$2")
      shift
      ;;
    --owt)
      owt=${2:-}
      shift
      ;;
    -*) wrong_usage "unknown option $1" ;;
    *)
      [ -z "$work" ] || wrong_usage "one folder is wanted, not '$work' and '$1'"
      work=$1
      ;;
  esac
  shift || wrong_usage "--owt wants a program"
done
[ -n "$work" ] || wrong_usage "the folder WORK is missing"
[ -x "$owt" ] || wrong_usage "$owt is no program; build owt, or name it with --owt"

install_packages python3-pil python3-fonttools "${packages[@]}"
mkdir -p "$work"
# The packages belong to Debian's Python, which may not be the first one in PATH.
/usr/bin/python3 "$here/glyphs.py" "$work" --held-out "$here/glyphs_held_out.txt" "${sizes[@]}" "${packages[@]}"
prepare() {  # prepare LIST OUT SPLIT
  "$owt" prepare list "$work/$1.txt" "$work/$2" --split "$3" --root "$work/images" --classes "$work/classes.txt" \
    --size 0 --grey
}
prepare train shards train
prepare val shards val
prepare test test val
