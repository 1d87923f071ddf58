#!/usr/bin/env bash
# Tests the wheel that tools/package/wheel.py makes of a build: pip installs it, and `owt` and `python -m owt` are the
# program, which finds its recipes from any folder. It uses the libraries of this machine; tools/wheel.sh makes the
# wheel for others. Prints each case; exits 1 at the first that fails, and 77 if no environment can be made.
#
#   usage: tests/tools/wheel_test.sh OWT      OWT: the program in its build folder
set -euo pipefail

owt=$(realpath "$1")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source-path=SCRIPTDIR/../support
source "$root/tests/support/venv.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wrong() {
  echo "FAILED: $*" >&2
  exit 1
}
passed() { echo "passed: $*"; }

make_venv "$work/venv" >"$work/log" 2>&1 || {
  echo "skipped: python3 makes no environment; install python3-venv"
  exit 77
}
python=$work/venv/bin/python
wheel=$(python3 "$root/tools/package/wheel.py" "$(dirname "$owt")" "$work/wheels")
"${pip[@]}" install --no-index -q "$wheel" >"$work/log" 2>&1 || wrong "pip install: $(cat "$work/log")"
"$python" - <<'END' || wrong "files differ from what the wheel says of them"
import base64, hashlib, importlib.metadata
for file in importlib.metadata.files("owt"):
    if file.hash:
        digest = hashlib.new(file.hash.mode, file.locate().read_bytes()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value, file
assert importlib.metadata.metadata("owt").get_all("Provides-Extra") == ["cuda13"]
END
passed "pip installs $(basename "$wheel"), and its files are what the wheel says"

mkdir "$work/elsewhere"
cd "$work/elsewhere"
run() { env -i HOME="$work" PATH="$work/venv/bin:/usr/bin:/bin" OMP_WAIT_POLICY=PASSIVE "$@"; }
[ "$(run owt --version)" = "$("$owt" --version)" ] || wrong "owt --version says $(run owt --version)"
run owt recipes --json | grep "$work/venv/lib.*/owt/configs/cifar10_quick.toml" >/dev/null || wrong "no recipes in the package"
run owt plan alexnet_owt --workers 4 >plan
run "$python" -m owt plan alexnet_owt --workers 4 | cmp - plan || wrong "python -m owt is another program"
grep -q fc6 plan || wrong "no plan of a model by its name"
status=0
run owt train no_such_recipe 2>error || status=$?
expected=0
"$owt" train no_such_recipe 2>error || expected=$?
[ "$status" -gt 0 ] && [ "$status" = "$expected" ] || wrong "an error exits with $status, not $expected"
passed "owt and python -m owt are the program, with its recipes and exit codes"

run owt prepare synthetic data --train 400 --test 100 >/dev/null
train() {  # train RUN PROGRAM...
  run "${@:2}" train quickstart --data data --steps 3 --device cpu --set run.conv_algorithm=by-shape --out "$1" \
    >log 2>&1 || wrong "training: $(cat log)"
}
train of_wheel owt
train of_build "$owt"
"$python" - <<'END' || wrong "other losses than those of the build"
import json
of_wheel, of_build = ([line["loss"] for line in map(json.loads, open(f"of_{program}/metrics.jsonl")) if "loss" in line]
                      for program in ("wheel", "build"))
assert of_wheel and len(of_wheel) == len(of_build), (of_wheel, of_build)
assert all(abs(a - b) < 1e-6 for a, b in zip(of_wheel, of_build)), (of_wheel, of_build)
END
passed "it trains with the losses of the build"

run "$python" -c 'import owt; print(owt.runs("of_*")[1].metrics(frame="dict")["step"][-1])' | grep -x 3 >/dev/null ||
  wrong "import owt does not read the run"
run owt log-to --help | grep -e --follow >/dev/null || wrong "owt log-to is no command"
passed "it reads runs in Python"

licences=$(echo "$work"/venv/lib/python*/site-packages/owt-*.dist-info/licenses)
for word in 'MIT License' libdnnl libopencv 'Apache License'; do
  cat "$licences/LICENSE" "$licences/LIBRARIES" | grep -F "$word" >/dev/null || wrong "no '$word' in the licences"
done
passed "the licences of the libraries are in the package"
