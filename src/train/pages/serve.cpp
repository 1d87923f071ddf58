#include "src/train/pages/serve.h"

#include <httplib.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "src/core/check.h"
#include "src/core/joined_threads.h"
#include "src/core/log.h"
#include "src/train/pages/page.h"
#include "src/train/pages/prometheus.h"

namespace owt {
namespace {

using ServeClock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLookAgain(1000), kHeartbeat(1000), kSeeStop(50);
constexpr int kServeThreads = 64, kMostOpenPages = 48;

// What is answered now; from many threads.
class Served {
 public:
  void put(std::string page, std::string metrics) {
    const std::lock_guard lock(mutex_);
    page_ = std::move(page), metrics_ = std::move(metrics);
    ++version_;
    changed_.notify_all();
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  int open_pages(int more) { return open_pages_ += more; }
  std::string page() const { return copy_of(page_); }
  std::string metrics() const { return copy_of(metrics_); }
  // The version, when it is another than `seen` or some time has passed; 0: it has stopped.
  int64_t next(int64_t seen) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kHeartbeat, [&] { return stopped_ || version_ != seen; });
    return stopped_ ? 0 : version_;
  }

 private:
  std::string copy_of(const std::string& text) const {
    const std::lock_guard lock(mutex_);
    return text;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string page_, metrics_;
  int64_t version_ = 0;
  bool stopped_ = false;
  std::atomic<int> open_pages_{0};
};

// One of the pages that wait for events, while it lives.
class OpenPage {
 public:
  explicit OpenPage(Served& served) : served_(served), number_(served.open_pages(1)) {}
  ~OpenPage() { served_.open_pages(-1); }
  OpenPage(const OpenPage&) = delete;
  OpenPage& operator=(const OpenPage&) = delete;
  bool counts() const { return number_ <= kMostOpenPages; }

 private:
  Served& served_;
  int number_;
};

// The runs, read again while they go on.
class WatchedRuns {
 public:
  explicit WatchedRuns(const std::vector<std::string>& folders) : readers_(folders.begin(), folders.end()) { read(); }

  // True: one of them has changed.
  bool read() {
    bool changed = false;
    for (RunReader& reader : readers_) changed = reader.read() || changed;
    return changed;
  }
  void render(const std::string& layer, Served& served) const {
    std::vector<RunRecord> runs;
    for (const RunReader& reader : readers_) runs.push_back(reader.record());
    tell_apart(runs);
    PageOptions options;
    options.layer = layer;
    options.live = true;
    served.put(page_of(runs, options), prometheus_text(runs));
  }

 private:
  std::vector<RunReader> readers_;
};

// A page that is open holds a thread, and others are for requests: one more page stays as it is.
void answer_events(Served& served, httplib::Response& response) {
  response.set_header("Cache-Control", "no-store");
  auto open = std::make_shared<OpenPage>(served);
  if (!open->counts()) {
    response.status = 503;
    return;
  }
  response.set_chunked_content_provider(
      "text/event-stream", [&served, open, seen = int64_t{0}](size_t, httplib::DataSink& sink) mutable {
        const int64_t version = served.next(seen);
        if (version == 0) {
          sink.done();
          return true;
        }
        const std::string text = version == seen ? ":\n\n" : format("data: {}\n\n", version);
        seen = version;
        sink.write(text.data(), text.size());
        return true;
      });
}

void add_answers(httplib::Server& server, Served& served) {
  server.Get("/", [&served](const httplib::Request&, httplib::Response& response) {
    response.set_header("Cache-Control", "no-store");
    response.set_content(served.page(), "text/html; charset=utf-8");
  });
  server.Get("/metrics", [&served](const httplib::Request&, httplib::Response& response) {
    response.set_content(served.metrics(), "text/plain; version=0.0.4; charset=utf-8");
  });
  server.Get("/events",
             [&served](const httplib::Request&, httplib::Response& response) { answer_events(served, response); });
}

// The library lets several programs listen at one port.
void listen_alone(httplib::Server& server) {
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
}

int bound_port(httplib::Server& server, const ServeOptions& options) {
  const int port = options.port == 0 ? server.bind_to_any_port(options.host.c_str())
                   : server.bind_to_port(options.host.c_str(), options.port) ? options.port
                                                                             : -1;
  if (port <= 0)
    fail("cannot listen at ", options.host, ":", options.port, "; give another --port, or 0 for any that is free");
  return port;
}

// Looks at the files again and again, less often where a page takes long to make.
void follow(WatchedRuns& runs, const std::string& layer, Served& served, const std::function<bool()>& stop) {
  auto next = ServeClock::now() + kLookAgain;
  while (!stop()) {
    std::this_thread::sleep_for(kSeeStop);
    const auto begin = ServeClock::now();
    if (begin < next) continue;
    if (runs.read()) runs.render(layer, served);
    next = begin + kLookAgain + 5 * (ServeClock::now() - begin);
  }
}

// Connections end with their answers, and those that ask nothing soon, so that none of them holds up the end.
void end_connections_soon(httplib::Server& server) {
  server.set_keep_alive_max_count(1);
  server.set_keep_alive_timeout(1);
  server.set_read_timeout(1);
  server.set_write_timeout(1);
}

// Whether a request names this machine as people do, "localhost:8765", with any port or with none.
bool is_this_machine(const std::string& host) {
  const size_t port = host.starts_with('[') ? host.find(':', host.find(']')) : host.find(':');
  std::string name = host.substr(0, port);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name == "localhost" || name == "127.0.0.1" || name == "[::1]";
}

// Elsewhere a browser may know this machine by any name.
void answer_this_machine_alone(httplib::Server& server) {
  server.set_pre_routing_handler([](const httplib::Request& request, httplib::Response& response) {
    if (is_this_machine(request.get_header_value("Host"))) return httplib::Server::HandlerResponse::Unhandled;
    response.status = 403;
    response.set_content("owt watch answers requests to localhost alone; --host ADDRESS serves to others\n",
                         "text/plain");
    return httplib::Server::HandlerResponse::Handled;
  });
}

}  // namespace

void serve_runs(const std::vector<std::string>& folders, const ServeOptions& options,
                const std::function<void(int)>& ready, const std::function<bool()>& stop) {
  WatchedRuns runs(folders);
  Served served;
  runs.render(options.layer, served);
  httplib::Server server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kServeThreads); };
  listen_alone(server);
  end_connections_soon(server);
  if (is_this_machine(options.host) || options.host == "::1") answer_this_machine_alone(server);
  add_answers(server, served);
  const int port = bound_port(server, options);
  // The library starts these on the listener's thread, where it would end the process.
  check_threads(kServeThreads + 1, "thread for requests", "");
  std::thread listener = start_thread("the thread that listens to browsers", "", [&] { server.listen_after_bind(); });
  const auto end = [&] {
    served.stop();
    server.stop();
    listener.join();
  };
  try {
    ready(port);
    follow(runs, options.layer, served, stop);
  } catch (...) {
    end();
    throw;
  }
  end();
}

}  // namespace owt
