#include "src/report/pages/serve.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <set>

#include "src/report/pages/http_server.h"
#include "src/report/pages/page.h"
#include "src/report/pages/prometheus.h"
#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

namespace fs = std::filesystem;
using ServeClock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLookAgain(1000), kHeartbeat(1000), kSeeStop(50);

constexpr int kDeepestRun = 2;  // folders below a watched one

// A page that is made when it is asked for, after a change.
struct LivePage {
  int64_t version = 1;
  std::shared_ptr<const std::string> text{};

  void change() { ++version, text.reset(); }
  template <class Make>
  std::shared_ptr<const std::string> made(const Make& make) {
    if (!text) text = std::make_shared<const std::string>(make());
    return text;
  }
  std::string event() const { return format("data: {}\n\n", version); }
};

struct ChangedPage {
  std::string events_path, event;
};

// The pages of runs, read again while the runs continue.
class LivePages {
 public:
  virtual ~LivePages() = default;
  virtual std::vector<ChangedPage> renew() = 0;
  virtual HttpAnswer answer(const std::string& path) = 0;

 protected:
  static HttpAnswer page(std::shared_ptr<const std::string> text) {
    return {200, "text/html; charset=utf-8", content_policy({.live = true}), std::move(text)};
  }
  static HttpAnswer metrics(const std::vector<RunRecord>& runs) {
    return {200, "text/plain; version=0.0.4; charset=utf-8", "default-src 'none'",
            std::make_shared<const std::string>(prometheus_text(runs))};
  }
  static HttpAnswer events(const LivePage& of) {
    return {200, "text/event-stream", "default-src 'none'", std::make_shared<const std::string>(of.event()), true};
  }
  static HttpAnswer not_found() {
    return {404, "text/plain; charset=utf-8", "default-src 'none'", std::make_shared<const std::string>("not found\n")};
  }
};

// Given runs, on one page.
class PageOfRuns : public LivePages {
 public:
  PageOfRuns(const std::vector<std::string>& folders, const std::string& layer)
      : readers_(folders.begin(), folders.end()), layer_(layer) {
    for (RunReader& reader : readers_) reader.read();
  }

  std::vector<ChangedPage> renew() override {
    bool changed = false;
    for (RunReader& reader : readers_) changed = reader.read() || changed;
    if (!changed) return {};
    page_.change();
    return {{"/events", page_.event()}};
  }
  HttpAnswer answer(const std::string& path) override {
    if (path == "/") return page(page_.made([&] { return page_of(runs(), {.layer = layer_, .live = true}); }));
    if (path == "/metrics") return metrics(runs());
    return path == "/events" ? events(page_) : not_found();
  }

 private:
  std::vector<RunRecord> runs() const {
    std::vector<RunRecord> runs;
    for (const RunReader& reader : readers_) runs.push_back(reader.record());
    tell_apart(runs);
    return runs;
  }

  std::vector<RunReader> readers_;
  std::string layer_;
  LivePage page_;
};

// The runs of a folder: a list, and a page for each.
class PagesOfFolder : public LivePages {
 public:
  PagesOfFolder(const std::string& folder, const std::string& layer) : folder_(folder), layer_(layer) {
    find_runs();
    if (runs_.empty()) RunReader unused(folder);  // throws
  }

  std::vector<ChangedPage> renew() override {
    std::vector<ChangedPage> changed;
    const size_t known = runs_.size();
    find_runs();
    for (ListedRun& run : runs_)
      if (read(run)) {
        run.page.change();
        changed.push_back({"/run/" + name_in_url(run.name) + "/events", run.page.event()});
      }
    if (changed.empty() && runs_.size() == known) return {};
    list_.change();
    changed.push_back({"/events", list_.event()});
    return changed;
  }
  HttpAnswer answer(const std::string& path) override {
    if (path == "/") return page(list_.made([&] { return list_page_of(records(), folder_); }));
    if (path == "/metrics") return metrics(records());
    if (path == "/events") return events(list_);
    // The path is compared with the paths of the listed runs; it never becomes a name of a file.
    for (ListedRun& run : runs_) {
      const std::string own = "/run/" + name_in_url(run.name) + "/";
      if (path == own)
        return page(run.page.made(
            [&] { return page_of(std::vector{record_of(run)}, {.layer = layer_, .in_list = true, .live = true}); }));
      if (path == own + "events") return events(run.page);
    }
    return not_found();
  }

 private:
  struct ListedRun {
    std::string name;
    RunReader reader;
    LivePage page{};
  };

  // Adds runs that are not listed yet.
  void find_runs() {
    std::set<std::string> found;
    find_below(folder_, kDeepestRun, found);
    for (const ListedRun& run : runs_) found.erase(run.name);
    for (const std::string& name : found) try {
        ListedRun run{name, RunReader((fs::path(folder_) / name).string())};
        run.reader.read();
        runs_.push_back(std::move(run));
      } catch (const std::exception& e) {
        warn_once(name, e);
      }
  }
  // True: there is news.
  bool read(ListedRun& run) {
    try {
      return run.reader.read();
    } catch (const std::exception& e) {
      warn_once(run.name, e);
      return false;
    }
  }
  // A run that cannot be read does not end the service of the others.
  void warn_once(const std::string& name, const std::exception& why) {
    if (unreadable_.insert(name).second) log_warn("run {}: {}", name, why.what());
  }
  void find_below(const fs::path& folder, int depth, std::set<std::string>& found) const {
    std::error_code ignored;  // a folder that was just removed, or may not be read
    for (fs::directory_iterator entry(folder, ignored); entry != end(entry); entry.increment(ignored)) {
      if (!entry->is_directory(ignored)) continue;
      if (has_run_files(entry->path().string()))
        found.insert(entry->path().lexically_relative(folder_).string());
      else if (depth > 1)
        find_below(entry->path(), depth - 1, found);
    }
  }
  static RunRecord record_of(const ListedRun& run) {
    RunRecord record = run.reader.record();
    record.name = run.name;
    return record;
  }
  std::vector<RunRecord> records() const {
    std::vector<RunRecord> records;
    for (const ListedRun& run : runs_) records.push_back(record_of(run));
    return records;
  }

  std::string folder_, layer_;
  std::vector<ListedRun> runs_;
  std::set<std::string> unreadable_;  // for one warning each
  LivePage list_;
};

std::unique_ptr<LivePages> pages_of(const std::vector<std::string>& folders, const std::string& layer) {
  if (folders.size() == 1 && !has_run_files(folders.front()))
    return std::make_unique<PagesOfFolder>(folders.front(), layer);
  return std::make_unique<PageOfRuns>(folders, layer);
}

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

// Checks the files repeatedly, less often if that takes long.
void follow(LivePages& pages, HttpServer& server, const std::function<bool()>& stop) {
  auto look = ServeClock::now() + kLookAgain, beat = ServeClock::now() + kHeartbeat;
  while (!stop()) {
    server.serve_for(kSeeStop);
    const auto begin = ServeClock::now();
    if (begin >= look) {
      for (const ChangedPage& page : pages.renew()) server.send_event(page.event, page.events_path);
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
  const std::unique_ptr<LivePages> pages = pages_of(folders, options.layer);
  HttpServer server(options.host, options.port);
  const OwnNames names(options, server);
  server.answer_with([&](const HttpRequest& request) {
    return names.have(request.host) ? pages->answer(request.path) : names.refusal();
  });
  ready(format("http://{}:{}/", as_in_urls(options.host), server.port()));
  follow(*pages, server, stop);
}

}  // namespace owt
