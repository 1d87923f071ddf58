#!/usr/bin/env bash
# Tests owt watch: the page, its events and its metrics while a run grows; no other file; an end on SIGINT. Prints each
# case; exits 1 if one has failed.
#
#   usage: watch_test.sh OWT
set -euo pipefail

owt=$1
# shellcheck source-path=SCRIPTDIR/../support
source "$(dirname "${BASH_SOURCE[0]}")/../support/lanes.sh"
work=$(mktemp -d)
watching=
clean_up() {
  end_lanes
  [ -z "$watching" ] || kill -9 "$watching" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT

wrong() {
  echo "FAILED: $case_name: $*" >&2
  cat "$work/said" >&2 2>/dev/null || true
  exit 1
}
passed() { echo "passed: $case_name"; }

line() { echo "{\"kind\":\"train\",\"step\":$1,\"epoch\":0,\"loss\":$2,\"top1\":0.5,\"lr\":0.1}"; }
begin_run() {  # begin_run LOSS...: in the folder of this lane
  local loss step=0
  run=$work/run
  mkdir "$run"
  for loss in "$@"; do line $((++step)) "$loss"; done >"$run/metrics.jsonl"
}

# Starts a watch; $url is its address. The output of the previous watch is cleared here: the child may clear it too
# late, and the address of an ended watch would be used.
watch_run() {
  : >"$work/said"
  "$owt" watch "$@" --port 0 >"$work/said" 2>&1 &
  watching=$!
  until url=$(sed -n 's|^\(http://[^ ]*\) shows.*|\1|p' "$work/said") && [ -n "$url" ]; do
    kill -0 "$watching" 2>/dev/null || wrong "it ended"
    sleep 0.05
  done
}
get() { curl -sS --max-time 60 "$@"; }

status_for() { get -H "Host: $1" -o "$work/answer" -w '%{http_code}' "$url$2"; }

one_run() {
  begin_run 2.5
  echo secret >"$work/secret"

  case_name="the page is served to this machine alone"
  watch_run "$run"
  [[ $url == http://127.0.0.1:*/ ]] || wrong "it serves at $url"
  get "$url" >"$work/page"
  grep -q '<h1>run</h1>' "$work/page" || wrong "no page"
  grep -q EventSource "$work/page" || wrong "the page has no script"
  passed

  case_name="a page from elsewhere whose name leads here gets nothing"
  for host in evil.example evil.example:80 127.0.0.1.evil.example localhost.evil.example 10.0.0.1 '[::2]:80' ''; do
    for path in '' metrics events; do
      [ "$(status_for "$host" "$path")" = 403 ] || wrong "'$host' gets /$path: $(cat "$work/answer")"
    done
  done
  for host in localhost LocalHost:80 127.0.0.1 127.0.0.1:9 '[::1]' '[::1]:80'; do
    [ "$(status_for "$host" '')" = 200 ] || wrong "'$host' gets $(cat "$work/answer")"
  done
  passed

  case_name="every address of this machine alone wants one of its names"
  other_address() {  # HOST...: the answers of the watch at $1 to requests for each of these hosts
    : >"$work/other_said"  # see watch_run
    "$owt" watch "$run" --host "$1" --port 0 --name here.example >"$work/other_said" 2>&1 &
    local other=$! at host codes=
    until at=$(sed -n 's|^\(http://[^ ]*\) shows.*|\1|p' "$work/other_said") && [ -n "$at" ]; do
      kill -0 "$other" 2>/dev/null || wrong "it ended: $(cat "$work/other_said")"
      sleep 0.05
    done
    at=${at/0.0.0.0/127.0.0.1}
    for host in "${@:2}"; do codes+="$(get -H "Host: $host" -o /dev/null -w '%{http_code}' "$at") "; done
    kill -INT "$other"
    wait "$other" || wrong "status $?"
    echo "${codes% }"
  }
  own=$(uname -n)
  [ "$(other_address 127.0.0.2 evil.example 10.0.0.1 127.0.0.2 localhost here.example:80)" = "403 403 200 200 200" ] ||
    wrong "at 127.0.0.2"
  [ "$(other_address 0.0.0.0 evil.example '' 10.0.0.1:80 '[2001:db8::1]' "$own" localhost here.example)" = \
    "403 403 200 200 200 200 200" ] || wrong "at 0.0.0.0"
  passed

  case_name="the page lets nothing run but its own two scripts"
  policy=$(get -D - -o "$work/page" "$url" | tr -d '\r' | sed -n 's/^Content-Security-Policy: //p')
  hash_of() { python3 -c '
import base64, hashlib, re, sys
texts = re.findall("<%s>(.*?)</%s>" % (sys.argv[2], sys.argv[2]), open(sys.argv[1]).read(), re.S)
print(base64.b64encode(hashlib.sha256(texts[int(sys.argv[3])].encode()).digest()).decode())' "$work/page" "$1" "$2"; }
  [[ $policy == *"script-src 'sha256-$(hash_of script 0)' 'sha256-$(hash_of script 1)';"* ]] || wrong "script: $policy"
  [[ $policy == *"style-src 'sha256-$(hash_of style 0)' "* ]] || wrong "style: $policy"
  [[ $policy == *"frame-ancestors 'none'"* ]] || wrong "frames: $policy"
  grep -qF "content=\"${policy%;frame-ancestors*}\"" "$work/page" || wrong "the page says another policy"
  passed

  case_name="metrics are those of the newest step"
  grep -qx 'owt_step{run="run"} 1' <<<"$(get "${url}metrics")" || wrong "$(get "${url}metrics")"
  passed

  case_name="metrics are in Prometheus' text format"
  get -D "$work/head" "${url}metrics" >"$work/metrics"
  grep -qi '^content-type: text/plain; version=0.0.4; charset=utf-8' "$work/head" || wrong "$(cat "$work/head")"
  if command -v promtool >/dev/null; then  # from Debian's package prometheus, which is large
    promtool check metrics <"$work/metrics" >"$work/said" 2>&1 || wrong "promtool complains"
    passed
  else
    echo "skipped: $case_name: there is no promtool"
  fi

  case_name="an event comes when the run has news, and the page has them"
  # The first event has the version; the next one follows a line. Several browsers read at once.
  browsers=()
  for i in 1 2 3; do
    get --max-time 600 -N "${url}events" >"$work/events$i" &
    browsers+=($!)
    until grep -qs '^data: 1' "$work/events$i"; do sleep 0.05; done
  done
  line 2 0.0625 >>"$run/metrics.jsonl"
  for i in 1 2 3; do
    until grep -q '^data: 2' "$work/events$i"; do sleep 0.05; done
  done
  grep -q '0.0625' <<<"$(get "$url")" || wrong "the page has no new loss"
  grep -qx 'owt_step{run="run"} 2' <<<"$(get "${url}metrics")" || wrong "metrics are old"
  passed

  case_name="no file can be had, and nothing changed"
  for path in ../secret ../../../../../../../../etc/passwd %2e%2e/secret ..%2fsecret /etc/passwd metrics.jsonl run/metrics.jsonl \
    '..\secret' '%00' './/../secret' config.toml; do
    status=$(get --path-as-is -o "$work/answer" -w '%{http_code}' "$url$path")
    [[ $status == 40[0-9] ]] || wrong "$path: status $status"
    if grep -qE 'secret|root:|kind' "$work/answer"; then wrong "$path: $(cat "$work/answer")"; fi
  done
  for method in POST PUT DELETE; do
    status=$(get -X "$method" -d x -o "$work/answer" -w '%{http_code}' "$url")
    [ "$status" = 405 ] || wrong "$method: status $status"
  done
  [ "$(ls "$run")" = metrics.jsonl ] || wrong "the run folder has more files"
  passed

  case_name="of a run folder that is deleted the page stays, and says so"
  mv "$run" "$work/away"
  until grep -q '^data: 3' "$work/events1"; do sleep 0.05; done
  grep -q 'is gone; this is what it held' <<<"$(get "$url")" || wrong "the page does not say it"
  grep -q '0.0625' <<<"$(get "$url")" || wrong "the page has lost what it had"
  mv "$work/away" "$run"
  until grep -q '^data: 4' "$work/events1"; do sleep 0.05; done
  if grep -q 'is gone' <<<"$(get "$url")"; then wrong "the run is there again"; fi
  passed

  case_name="a port that is taken is named, with the option that chooses another"
  port=${url##*:}
  port=${port%/}
  if "$owt" watch "$run" --port "$port" >"$work/second" 2>&1; then wrong "a second one listens there"; fi
  grep -q "cannot listen at 127.0.0.1:$port; give another --port" "$work/second" || wrong "$(cat "$work/second")"
  [ "$(wc -l <"$work/second")" = 1 ] || wrong "it says more than a line: $(cat "$work/second")"
  passed

  case_name="SIGINT ends it, with pages open and connections that ask nothing"
  exec 8<>"/dev/tcp/127.0.0.1/$port" 9<>"/dev/tcp/127.0.0.1/$port"
  printf 'GET / HTTP/1.1\r\n' >&9
  kill -INT "$watching"
  status=0
  wait "$watching" || status=$?
  watching=
  [ "$status" = 0 ] || wrong "status $status"
  for browser in "${browsers[@]}"; do wait "$browser" || true; done
  exec 8>&- 9>&-
  passed
}

several_runs() {
  begin_run 2.5 0.0625
  case_name="several runs are watched on one page"
  cp -r "$run" "$work/other"
  line 3 0.75 >>"$work/other/metrics.jsonl"
  watch_run "$run" "$work/other"
  grep -q '<h1>run, other</h1>' <<<"$(get "$url")" || wrong "no page of both"
  metrics=$(get "${url}metrics")
  grep -qx 'owt_loss{run="run"} 0.0625' <<<"$metrics" || wrong "$metrics"
  grep -qx 'owt_loss{run="other"} 0.75' <<<"$metrics" || wrong "$metrics"
  [ "$(grep -c '^# TYPE owt_loss ' <<<"$metrics")" = 1 ] || wrong "$metrics"
  kill -INT "$watching"
  wait "$watching" || wrong "status $?"
  watching=
  passed
}

folder_of_runs() {
  begin_run 2.5 0.0625
  case_name="the runs of a folder are listed, also those that begin later, and each has its page"
  mkdir -p "$work/runs/sub/deep"
  cp -r "$run" "$work/runs/one"
  mkdir "$work/runs/no run" && echo secret >"$work/runs/no run/secret"
  mkdir -p "$work/runs/unreadable/metrics.jsonl"
  watch_run "$work/runs"
  page=$(get "$url")
  grep -q '<a href="run/one/">one</a>' <<<"$page" || wrong "run one is not listed"
  grep -q '0.0625' <<<"$(get "${url}run/one/")" || wrong "run one has no page"
  [ "$(grep -c 'run unreadable: cannot read' "$work/said")" = 1 ] || wrong "the unreadable run is not named once"
  : >"$work/list_events"
  : >"$work/run_events"
  get --max-time 600 -N "${url}events" >"$work/list_events" &
  browsers=($!)
  get --max-time 600 -N "${url}run/one/events" >"$work/run_events" &
  browsers+=($!)
  for events in list_events run_events; do until grep -q '^data: 1' "$work/$events"; do sleep 0.05; done; done
  mkdir "$work/new" && line 1 0.5 >"$work/new/metrics.jsonl"
  mv "$work/new" "$work/runs/sub/deep/<i> & x"  # too deep
  mkdir "$work/new" && line 1 0.5 >"$work/new/metrics.jsonl"
  mv "$work/new" "$work/runs/sub/<i> & x"
  until grep -q '^data: 2' "$work/list_events"; do sleep 0.05; done
  page=$(get "$url")
  grep -q '<a href="run/sub%2F%3Ci%3E%20%26%20x/">sub/&lt;i&gt; &amp; x</a>' <<<"$page" || wrong "the new run is not listed"
  [ "$(grep -c '<a href="run/' <<<"$page")" = 2 ] || wrong "there are more runs: $page"
  grep -q '<h1>sub/&lt;i&gt; &amp; x</h1>' <<<"$(get "${url}run/sub%2F%3Ci%3E%20%26%20x/")" || wrong "the new run has no page"
  line 3 0.125 >>"$work/runs/one/metrics.jsonl"
  until grep -q '^data: 3' "$work/list_events" && grep -q '^data: 2' "$work/run_events"; do sleep 0.05; done
  grep -q '0.125' <<<"$(get "${url}run/one/")" || wrong "the page of run one is old"
  grep -qx 'owt_loss{run="one"} 0.125' <<<"$(get "${url}metrics")" || wrong "metrics are old"
  for path in run/one run/ run/one/metrics.jsonl run/one/../../secret run/no%20run/ run/no%20run/secret run/../run/one/ run/sub/; do
    status=$(get --path-as-is -o "$work/answer" -w '%{http_code}' "$url$path")
    [[ $status == 404 ]] || wrong "$path: status $status"
  done
  [ "$(status_for evil.example run/one/)" = 403 ] || wrong "another host gets a run"
  kill -INT "$watching"
  wait "$watching" || wrong "status $?"
  watching=
  for browser in "${browsers[@]}"; do wait "$browser" || true; done
  passed

  case_name="a folder without a run is named"
  if "$owt" watch "$work/none" >"$work/said" 2>&1; then wrong "it serves nothing"; fi
  grep -q 'is no run folder' "$work/said" || wrong "it does not say so"
  mkdir "$work/empty"
  if "$owt" watch "$work/empty" >"$work/said" 2>&1; then wrong "it serves an empty folder"; fi
  grep -q 'is no run folder' "$work/said" || wrong "it does not say so: $(cat "$work/said")"
  passed
}

for cases in one_run several_runs folder_of_runs; do beside "$cases"; done
all_ended
