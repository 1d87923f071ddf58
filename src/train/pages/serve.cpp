#include "src/train/pages/serve.h"

#include <httplib.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "src/core/check.h"
#include "src/core/log.h"
#include "src/train/pages/page.h"
#include "src/train/pages/prometheus.h"

namespace owt {
namespace {

using ServeClock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLookAgain(1000), kHeartbeat(1000), kSeeStop(50);
constexpr size_t kServeThreads = 64;  // a page that is open holds one

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
};

void render(const RunReader& reader, const std::string& layer, Served& served) {
  const RunRecord run = reader.record();
  PageOptions options;
  options.layer = layer;
  options.live = true;
  served.put(page_of({&run, 1}, options), prometheus_text(run));
}

void answer_events(Served& served, httplib::Response& response) {
  response.set_header("Cache-Control", "no-store");
  response.set_chunked_content_provider(
      "text/event-stream", [&served, seen = int64_t{0}](size_t, httplib::DataSink& sink) mutable {
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
  const int port = options.port == 0                                 ? server.bind_to_any_port(options.host)
                   : server.bind_to_port(options.host, options.port) ? options.port
                                                                     : -1;
  if (port <= 0)
    fail("cannot listen at ", options.host, ":", options.port, "; give another --port, or 0 for any that is free");
  return port;
}

// Looks at the files again and again, less often where a page takes long to make.
void follow(RunReader& reader, const std::string& layer, Served& served, const std::function<bool()>& stop) {
  auto next = ServeClock::now() + kLookAgain;
  while (!stop()) {
    std::this_thread::sleep_for(kSeeStop);
    const auto begin = ServeClock::now();
    if (begin < next) continue;
    if (reader.read()) render(reader, layer, served);
    next = begin + kLookAgain + 5 * (ServeClock::now() - begin);
  }
}

}  // namespace

void serve_run(const std::string& folder, const ServeOptions& options, const std::function<void(int)>& ready,
               const std::function<bool()>& stop) {
  RunReader reader(folder);
  reader.read();
  Served served;
  render(reader, options.layer, served);
  httplib::Server server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kServeThreads); };
  listen_alone(server);
  add_answers(server, served);
  const int port = bound_port(server, options);
  std::thread listener([&] { server.listen_after_bind(); });
  const auto end = [&] {
    served.stop();
    server.stop();
    listener.join();
  };
  try {
    ready(port);
    follow(reader, options.layer, served, stop);
  } catch (...) {
    end();
    throw;
  }
  end();
}

}  // namespace owt
