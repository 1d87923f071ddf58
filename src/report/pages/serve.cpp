#include "src/report/pages/serve.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <set>

#include "src/report/pages/http_server.h"
#include "src/report/pages/page.h"
#include "src/report/pages/prometheus.h"
#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

using ServeClock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLookAgain(1000), kHeartbeat(1000), kSeeStop(50);

// The runs, read again while they continue, and the answers about them.
class WatchedRuns {
 public:
  WatchedRuns(const std::vector<std::string>& folders, const std::string& layer)
      : readers_(folders.begin(), folders.end()) {
    options_.layer = layer;
    options_.live = true;
    read();
    render();
  }

  // True: a run has changed, and the answers are updated.
  bool renew() {
    if (!read()) return false;
    render();
    return true;
  }
  HttpAnswer answer(const std::string& path) const {
    if (path == "/") return {200, "text/html; charset=utf-8", content_policy(options_), page_};
    if (path == "/metrics") return {200, "text/plain; version=0.0.4; charset=utf-8", "default-src 'none'", metrics_};
    if (path == "/events")
      return {200, "text/event-stream", "default-src 'none'", std::make_shared<const std::string>(event()), true};
    return {404, "text/plain; charset=utf-8", "default-src 'none'", std::make_shared<const std::string>("not found\n")};
  }
  std::string event() const { return format("data: {}\n\n", version_); }

 private:
  bool read() {
    bool changed = false;
    for (RunReader& reader : readers_) changed = reader.read() || changed;
    return changed;
  }
  void render() {
    std::vector<RunRecord> runs;
    for (const RunReader& reader : readers_) runs.push_back(reader.record());
    tell_apart(runs);
    page_ = std::make_shared<const std::string>(page_of(runs, options_));
    metrics_ = std::make_shared<const std::string>(prometheus_text(runs));
    ++version_;
  }

  std::vector<RunReader> readers_;
  PageOptions options_;
  std::shared_ptr<const std::string> page_, metrics_;
  int64_t version_ = 0;
};

std::string host_name_here() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

bool is_address(std::string name) {
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  std::array<std::byte, sizeof(in6_addr)> unused;
  return inet_pton(AF_INET, name.c_str(), unused.data()) == 1 || inet_pton(AF_INET6, name.c_str(), unused.data()) == 1;
}

std::string as_in_urls(const std::string& host) { return host.find(':') == host.npos ? host : "[" + host + "]"; }

// The names of this machine that browsers may use. A page from elsewhere whose name resolves to this machine (DNS
// rebinding) arrives under its own name.
class OwnNames {
 public:
  OwnNames(const ServeOptions& options, const HttpServer& server) : any_address_(server.is_any_address()) {
    add(options.host);
    for (const std::string& name : options.names) add(name);
    if (server.is_loopback() || any_address_)
      for (const char* name : {"localhost", "127.0.0.1", "::1"}) add(name);
    if (server.is_loopback()) return;
    const std::string own = host_name_here(), bare = own.substr(0, own.find('.'));
    if (!own.empty())
      for (const std::string& name : {own, bare, bare + ".local"}) add(name);
  }

  // host: see HttpRequest.
  bool have(const std::string& host) const {
    const size_t port = host.starts_with('[') ? host.find(':', std::min(host.find(']'), host.size())) : host.find(':');
    const std::string name = host.substr(0, port);
    // With an address instead of a name there is no DNS rebinding.
    return names_.contains(name) || (any_address_ && is_address(name));
  }
  HttpAnswer refusal() const {
    std::string list;
    for (const std::string& name : names_) list += (list.empty() ? "" : ", ") + name;
    return {403, "text/plain; charset=utf-8", "default-src 'none'",
            std::make_shared<const std::string>("owt watch answers requests to " + list +
                                                (any_address_ ? " and to addresses" : "") +
                                                "; owt watch --name NAME adds a name\n")};
  }

 private:
  void add(const std::string& name) { names_.insert(lower_case(as_in_urls(name))); }

  std::set<std::string> names_;
  bool any_address_;
};

// Checks the files repeatedly, less often if a page takes long to make.
void follow(WatchedRuns& runs, HttpServer& server, const std::function<bool()>& stop) {
  auto look = ServeClock::now() + kLookAgain, beat = ServeClock::now() + kHeartbeat;
  while (!stop()) {
    server.serve_for(kSeeStop);
    const auto begin = ServeClock::now();
    if (begin >= look) {
      if (runs.renew()) server.send_event(runs.event());
      look = begin + kLookAgain + 5 * (ServeClock::now() - begin);
    }
    if (begin >= beat) {
      server.send_event(":\n\n");
      beat = begin + kHeartbeat;
    }
  }
}

}  // namespace

void serve_runs(const std::vector<std::string>& folders, const ServeOptions& options,
                const std::function<void(const std::string&)>& ready, const std::function<bool()>& stop) {
  WatchedRuns runs(folders, options.layer);
  HttpServer server(options.host, options.port);
  const OwnNames names(options, server);
  server.answer_with([&](const HttpRequest& request) {
    return names.have(request.host) ? runs.answer(request.path) : names.refusal();
  });
  ready(format("http://{}:{}/", as_in_urls(options.host), server.port()));
  follow(runs, server, stop);
}

}  // namespace owt
