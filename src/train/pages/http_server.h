// A small HTTP/1.1 server of texts that are only read: GET and HEAD, one answer a connection, in the caller's thread.
// It runs beside trainings, so what strangers can cost is bounded: the head of a request by kLongestHead, connections
// by kMostConnections, each of them by time; a body is never read, ranges are never made, and slow readers of old texts
// are cut off before those texts take more than kMostOldBytes.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace owt {

struct HttpRequest {
  std::string path;  // without what follows a '?'
  std::string host;  // of the header, in small letters, with a port or without; empty where there is none
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string policy = "default-src 'none'";  // what the browser may do with it (Content-Security-Policy)
  std::shared_ptr<const std::string> body{};
  bool goes_on = false;  // server-sent events: the connection stays, for HttpServer::send_event()
};

std::string lower_case(std::string_view text);  // of ASCII's letters

class HttpServer {
 public:
  static constexpr size_t kLongestHead = 8192, kMostConnections = 256, kMostEventStreams = 48;
  static constexpr size_t kMostOldBytes = 32 << 20;

  // Listens; port 0 is any that is free. Throws Error where it cannot.
  HttpServer(const std::string& host, int port);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  // Who can come here: this machine alone, those who use one address of it, or one of all its addresses.
  bool is_loopback() const { return loopback_; }
  bool is_any_address() const { return any_address_; }

  void answer_with(std::function<HttpAnswer(const HttpRequest&)> answer) { answer_ = std::move(answer); }
  // Answers for about so long, or until a signal comes.
  void serve_for(std::chrono::milliseconds time);
  // To all whose answer goes on.
  void send_event(std::string_view event);

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
  std::list<Connection> connections_;  // the oldest first
};

}  // namespace owt
