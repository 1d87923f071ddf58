#!/usr/bin/env bash
# Tests tools/fetch_cifar10.sh with a server on this host. Prints each case; exits 1 at the first that fails.
set -euo pipefail

script=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/tools/fetch_cifar10.sh
work=$(mktemp -d)
server=
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
export no_proxy=127.0.0.1 NO_PROXY=127.0.0.1

make_archive() {
  local inner=$work/made/cifar-10-batches-bin file
  mkdir -p "$inner" "$work/www"
  for file in data_batch_{1..5}.bin test_batch.bin; do head -c 30730 /dev/urandom >"$inner/$file"; done
  printf 'airplane\nautomobile\n' >"$inner/batches.meta.txt"
  tar -czf "$work/www/archive.tar.gz" -C "$work/made" cifar-10-batches-bin
}

# Serves $work/www on a free port, writes the port to $work/port and each request's Range to $work/ranges.
# Files under /whole/ are always sent whole, as servers without range requests do.
start_server() {
  python3 - "$work" <<'PYTHON' &
import http.server, os, sys

work = sys.argv[1]

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open(f"{work}/ranges", "a") as log:
            log.write(self.headers.get("Range", "whole") + "\n")
        try:
            with open(f"{work}/www/{os.path.basename(self.path)}", "rb") as file:
                body = file.read()
        except OSError:
            self.send_error(404)
            return
        wanted = None if self.path.startswith("/whole/") else self.headers.get("Range")
        first = int(wanted.split("=")[1].split("-")[0]) if wanted else 0
        if first >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - first))
        self.end_headers()
        self.wfile.write(body[first:])

    def log_message(self, *args):
        pass

httpd = http.server.HTTPServer(("127.0.0.1", 0), Handler)
with open(f"{work}/port.new", "w") as out:
    out.write(str(httpd.server_port))
os.rename(f"{work}/port.new", f"{work}/port")
httpd.serve_forever()
PYTHON
  server=$!
  while kill -0 "$server"; do
    [ -s "$work/port" ] && return 0
    sleep 0.05
  done
  echo "the test server did not start" >&2
  exit 1
}

begin() { # a fresh folder for the case
  case_name=$1
  data=$work/data.$((++cases))
  : >"$work/ranges"
}
wrong() {
  echo "FAILED: $case_name: $*" >&2
  sed 's/^/  | /' "$work/output" >&2
  exit 1
}
passed() { echo "passed: $case_name"; }
fetch() { "$script" "$data" >"$work/output" 2>&1; }
expect_success() { fetch || wrong "the script ended with $?"; }
expect_failure() { if fetch; then wrong "the script succeeded"; fi; }
expect_output() { grep -qF -- "$1" "$work/output" || wrong "its output does not say '$1'"; }
expect_data() { diff -r "$work/made/cifar-10-batches-bin" "$data/cifar-10-batches-bin" >&2 || wrong "other data"; }
expect_ranges() { [ "$(paste -sd ' ' "$work/ranges")" = "$1" ] || wrong "requests: $(paste -sd ' ' "$work/ranges")"; }
expect_only() { [ "$(ls -A "$data" | paste -sd ' ')" = "$1" ] || wrong "$data holds $(ls -A "$data" | paste -sd ' ')"; }

cases=0
make_archive
start_server
site=http://127.0.0.1:$(cat "$work/port")
part=cifar-10-binary.tar.gz.part
export OWT_CIFAR10_URL=$site/archive.tar.gz
OWT_CIFAR10_MD5=$(md5sum "$work/www/archive.tar.gz" | cut -d ' ' -f 1)
export OWT_CIFAR10_MD5

begin "a fresh download is unpacked and leaves nothing else"
expect_success
expect_data
expect_only cifar-10-batches-bin
expect_ranges whole
passed

case_name="a second run asks the server for nothing"
: >"$work/ranges"
expect_success
expect_output "already in $data/cifar-10-batches-bin"
expect_ranges ""
passed

begin "a partial download goes on where it stopped"
mkdir "$data"
head -c 50000 "$work/www/archive.tar.gz" >"$data/$part"
expect_success
expect_data
expect_ranges "bytes=50000-"
passed

begin "a complete download is not repeated"
mkdir "$data"
cp "$work/www/archive.tar.gz" "$data/$part"
expect_success
expect_data
expect_ranges ""
passed

begin "a server without range requests sends the file anew"
mkdir "$data"
head -c 50000 "$work/www/archive.tar.gz" >"$data/$part"
OWT_CIFAR10_URL=$site/whole/archive.tar.gz expect_success
expect_data
passed

begin "a partial file longer than the archive is thrown away"
mkdir "$data"
head -c 1000000 /dev/zero >"$data/$part"
expect_success
expect_data
passed

begin "an archive with the wrong checksum is removed"
OWT_CIFAR10_MD5=00000000000000000000000000000000 expect_failure
expect_output "has MD5 $OWT_CIFAR10_MD5, wanted 00000000000000000000000000000000; it was removed"
expect_only ""
passed

begin "a missing file on the server is reported with its address"
OWT_CIFAR10_URL=$site/other.tar.gz expect_failure
expect_output "cannot download $site/other.tar.gz: the server refused it"
passed

begin "another data set in the same place is not taken for CIFAR-10"
mkdir -p "$data"
cp -r "$work/made/cifar-10-batches-bin" "$data/"
echo disc >"$data/cifar-10-batches-bin/batches.meta.txt"
expect_failure
expect_output "holds another data set (first class: disc)"
passed

begin "an incomplete data set is not taken for CIFAR-10"
mkdir -p "$data"
cp -r "$work/made/cifar-10-batches-bin" "$data/"
rm "$data/cifar-10-batches-bin/data_batch_3.bin"
expect_failure
expect_output "incomplete"
passed

begin "without curl the script says what to install"
mkdir "$work/bin"
for program in bash cat cut md5sum tar mkdir; do ln -s "$(command -v "$program")" "$work/bin/$program"; done
if PATH=$work/bin "$(command -v bash)" "$script" "$data" >"$work/output" 2>&1; then wrong "the script succeeded"; fi
expect_output "'curl' is not installed"
passed

begin "without a server the script says so and keeps what is there"
kill "$server"
wait "$server" 2>/dev/null || true
server=
mkdir "$data"
head -c 50000 "$work/www/archive.tar.gz" >"$data/$part"
expect_failure
expect_output "cannot download $OWT_CIFAR10_URL: nothing answers there"
expect_only "$part"
passed
