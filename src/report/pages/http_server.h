// A small HTTP/1.1 server for read-only texts: GET and HEAD, one answer per connection, in the caller's thread. It runs
// beside training, so the cost of requests is limited: kLongestHead bytes of a request's head, kMostConnections, and a
// time limit for each. Bodies are never read, ranges are never served, and slow readers of old texts are disconnected
// before those texts exceed kMostOldBytes.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "src/report/pages/http_head.h"

namespace owt {

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string policy = "default-src 'none'";  // limits for the browser (Content-Security-Policy)
  std::shared_ptr<const std::string> body{};
  bool goes_on = false;  // server-sent events: the connection stays open for HttpServer::send_event()
};

class HttpServer {
 public:
  static constexpr size_t kLongestHead = 8192, kMostConnections = 256, kMostEventStreams = 48;
  static constexpr size_t kMostOldBytes = 32 << 20;

  // Listens; port 0: any free port. Throws Error if it cannot.
  HttpServer(const std::string& host, int port);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  // The clients that can connect: only this machine, users of one of its addresses, or users of any of its addresses.
  bool is_loopback() const { return loopback_; }
  bool is_any_address() const { return any_address_; }

  void answer_with(std::function<HttpAnswer(const HttpRequest&)> answer) { answer_ = std::move(answer); }
  // Answers requests for about this long, or until a signal arrives.
  void serve_for(std::chrono::milliseconds time);
  // Sends the event to the open event streams of requests for this path; empty: to all.
  void send_event(std::string_view event, const std::string& path = "");

 private:
  struct Connection;

  void listen_at(const std::string& host, int port);
  void accept_all();
  void read_from(Connection& connection);
  void answer_to(Connection& connection);
  void give(Connection& connection, const HttpAnswer& answer, bool with_body);
  void write_to(Connection& connection);
  void end_those_that_are_done();
  void free_a_place();
  void free_old_texts();

  std::function<HttpAnswer(const HttpRequest&)> answer_;
  int listener_ = -1, port_ = 0;
  bool loopback_ = false, any_address_ = false;
  std::list<Connection> connections_;  // oldest first
};

}  // namespace owt
