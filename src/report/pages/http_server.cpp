#include "src/report/pages/http_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

using HttpClock = std::chrono::steady_clock;
constexpr std::chrono::seconds kHeadTime(5), kAnswerTime(10), kStreamTime(30), kDrainTime(1);
constexpr int64_t kLeastRate = 50'000;  // the least bytes per second of a long answer
constexpr size_t kMostWaitingEvents = 4096;
constexpr int kSocketBytes = 1 << 18;  // buffer size of a connection in the system

struct AddressList {
  addrinfo* first = nullptr;
  ~AddressList() {
    if (first) freeaddrinfo(first);
  }
};

bool is_of_this_machine_alone(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

bool is_any(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr == htonl(INADDR_ANY);
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

// A listening socket, or -1 with errno set.
int listening_socket(const addrinfo& address) {
  const int socket = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  for (const int buffer : {SO_SNDBUF, SO_RCVBUF})
    setsockopt(socket, SOL_SOCKET, buffer, &kSocketBytes, sizeof kSocketBytes);
  if (bind(socket, address.ai_addr, address.ai_addrlen) == 0 && listen(socket, 128) == 0) return socket;
  const int why = errno;
  close(socket);
  errno = why;
  return -1;
}

HttpAnswer refusal(int status, const char* text) {
  HttpAnswer answer;
  answer.status = status;
  answer.body = std::make_shared<const std::string>(std::string(text) + "\n");
  return answer;
}

}  // namespace

struct HttpServer::Connection {
  enum class State { kReading, kWriting, kStream, kDraining, kEnded };

  int socket;
  HttpClock::time_point until;
  State state = State::kReading;
  std::string head{};    // the request, then the answer, then events
  size_t sent_head = 0;  // bytes of `head` sent
  std::shared_ptr<const std::string> body{};
  size_t sent_body = 0;
  bool goes_on = false;
  std::string path{};  // the requested one

  bool has_more() const { return sent_head < head.size() || (body && sent_body < body->size()); }
};

HttpServer::HttpServer(const std::string& host, int port) {
  listen_at(host, port);
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
  port_ = ntohs(address.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                                             : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  loopback_ = is_of_this_machine_alone(address);
  any_address_ = is_any(address);
}

HttpServer::~HttpServer() {
  for (const Connection& connection : connections_) close(connection.socket);
  close(listener_);
}

void HttpServer::listen_at(const std::string& host, int port) {
  const addrinfo hints{.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                       .ai_family = AF_UNSPEC,
                       .ai_socktype = SOCK_STREAM,
                       .ai_protocol = 0,
                       .ai_addrlen = 0,
                       .ai_addr = nullptr,
                       .ai_canonname = nullptr,
                       .ai_next = nullptr};
  AddressList addresses;
  const int none = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &addresses.first);
  if (none) fail("cannot listen at ", host, ": ", gai_strerror(none), "; give an address of this machine as --host");
  int why = 0;
  for (const addrinfo* address = addresses.first; address && listener_ < 0; address = address->ai_next) {
    listener_ = listening_socket(*address);
    if (listener_ < 0) why = errno;
  }
  if (listener_ >= 0) return;
  if (why == EADDRNOTAVAIL) fail("cannot listen at ", host, ": it is no address of this machine; give one as --host");
  const std::string reason = why == EADDRINUSE ? "" : concat(": ", std::strerror(why));
  fail("cannot listen at ", host, ":", port, reason, "; give another --port, or 0 for any that is free");
}

void HttpServer::serve_for(std::chrono::milliseconds time) {
  const auto end = HttpClock::now() + time;
  do {
    std::vector<pollfd> wanted{{listener_, POLLIN, 0}};
    for (const Connection& connection : connections_)
      wanted.push_back({connection.socket,
                        static_cast<short>(connection.has_more() && connection.state != Connection::State::kReading
                                               ? (connection.goes_on ? POLLIN | POLLOUT : POLLOUT)
                                               : POLLIN),
                        0});
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - HttpClock::now());
    const int ready = poll(wanted.data(), wanted.size(), static_cast<int>(std::max<int64_t>(0, left.count())));
    if (ready < 0) break;  // a signal
    auto connection = connections_.begin();
    for (size_t i = 1; i < wanted.size(); ++i, ++connection) {
      if (wanted[i].revents & (POLLIN | POLLHUP | POLLERR)) read_from(*connection);
      if (wanted[i].revents & POLLOUT) write_to(*connection);
    }
    end_those_that_are_done();
    if (wanted[0].revents) accept_all();
  } while (HttpClock::now() < end);
}

void HttpServer::accept_all() {
  for (;;) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      if (errno == EMFILE || errno == ENFILE) free_a_place();
      return;
    }
    if (connections_.size() >= kMostConnections) free_a_place();
    connections_.push_back({socket, HttpClock::now() + kHeadTime});
  }
}

// Closes the oldest connection without a request; if there is none, the oldest without an event stream.
void HttpServer::free_a_place() {
  if (connections_.empty()) return;
  auto oldest = std::find_if(connections_.begin(), connections_.end(),
                             [](const Connection& c) { return c.state == Connection::State::kReading; });
  if (oldest == connections_.end())
    oldest = std::find_if(connections_.begin(), connections_.end(), [](const Connection& c) { return !c.goes_on; });
  if (oldest == connections_.end()) oldest = connections_.begin();
  close(oldest->socket);
  connections_.erase(oldest);
}

void HttpServer::read_from(Connection& connection) {
  std::array<char, 4096> buffer;
  const bool reading = connection.state == Connection::State::kReading;
  const size_t room = reading ? std::min(buffer.size(), kLongestHead + 1 - connection.head.size()) : buffer.size();
  const ssize_t count = recv(connection.socket, buffer.data(), room, 0);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
    connection.state = Connection::State::kEnded;
    return;
  }
  if (count < 0 || !reading) return;  // data after a request is ignored
  connection.head.append(buffer.data(), static_cast<size_t>(count));
  if (connection.head.find("\r\n\r\n") != std::string::npos || connection.head.size() > kLongestHead)
    answer_to(connection);
}

void HttpServer::answer_to(Connection& connection) {
  const size_t end = connection.head.find("\r\n\r\n");
  if (end == std::string::npos) return give(connection, refusal(431, "the head of the request is too long"), true);
  const HttpHead parsed = parsed_head(std::string_view(connection.head).substr(0, end));
  switch (parsed.status) {
    case 200:
      break;
    case 405:
      return give(connection, refusal(405, "only GET and HEAD are answered"), true);
    case 413:
      return give(connection, refusal(413, "requests have no body here"), parsed.wants_body);
    case 505:
      return give(connection, refusal(505, "this is HTTP/1.1"), true);
    default:
      return give(connection, refusal(400, "this is no request"), parsed.wants_body);
  }
  connection.path = parsed.request.path;
  const HttpAnswer answer = answer_(parsed.request);
  const auto streams = std::count_if(connections_.begin(), connections_.end(), [](auto& c) { return c.goes_on; });
  if (answer.goes_on && static_cast<size_t>(streams) >= kMostEventStreams)
    return give(connection, refusal(503, "too many pages are open"), parsed.wants_body);
  give(connection, answer, parsed.wants_body);
}

void HttpServer::give(Connection& connection, const HttpAnswer& answer, bool with_body) {
  const size_t bytes = answer.body ? answer.body->size() : 0;
  connection.head = format(
      "HTTP/1.1 {} {}\r\nConnection: close\r\nContent-Type: {}\r\nCache-Control: no-store\r\n"
      "Content-Security-Policy: {};frame-ancestors 'none'\r\nX-Frame-Options: DENY\r\n"
      "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
      "Cross-Origin-Resource-Policy: same-origin\r\n",
      answer.status, status_text(answer.status), answer.type, answer.policy);
  if (answer.status == 405) connection.head += "Allow: GET, HEAD\r\n";
  if (!answer.goes_on) connection.head += format("Content-Length: {}\r\n", bytes);
  connection.head += "\r\n";
  if (with_body) connection.body = answer.body;
  connection.goes_on = answer.goes_on && with_body;
  connection.state = Connection::State::kWriting;
  connection.until = HttpClock::now() + kAnswerTime + std::chrono::seconds(static_cast<int64_t>(bytes) / kLeastRate);
  free_old_texts();
  write_to(connection);
}

// Each update makes another text, and slow readers keep old ones alive; so the oldest readers are disconnected.
void HttpServer::free_old_texts() {
  std::set<const std::string*> kept;
  size_t bytes = 0;
  for (auto newest = connections_.rbegin(); newest != connections_.rend(); ++newest) {
    if (!newest->body || kept.contains(newest->body.get())) continue;
    const size_t more = kept.empty() ? 0 : newest->body->size();
    if (bytes + more > kMostOldBytes)
      newest->state = Connection::State::kEnded, newest->body.reset();
    else
      bytes += more, kept.insert(newest->body.get());
  }
}

void HttpServer::write_to(Connection& connection) {
  if (connection.state != Connection::State::kWriting && connection.state != Connection::State::kStream) return;
  const auto send_from = [&](const std::string& text, size_t& sent) {
    while (sent < text.size()) {
      const ssize_t count = send(connection.socket, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (count < 0) return errno == EAGAIN || errno == EINTR;
      sent += static_cast<size_t>(count);
    }
    return true;
  };
  bool open = send_from(connection.head, connection.sent_head);
  if (open && connection.sent_head == connection.head.size() && connection.body)
    open = send_from(*connection.body, connection.sent_body);
  if (!open) connection.state = Connection::State::kEnded;
  if (!open || connection.has_more()) return;
  connection.body.reset();
  if (connection.goes_on) {
    connection.head.clear(), connection.sent_head = 0;
    connection.state = Connection::State::kStream;
    connection.until = HttpClock::now() + kStreamTime;
  } else {
    // An immediate close could discard the answer if the client is still sending.
    shutdown(connection.socket, SHUT_WR);
    connection.state = Connection::State::kDraining;
    connection.until = HttpClock::now() + kDrainTime;
  }
}

void HttpServer::send_event(std::string_view event, const std::string& path) {
  for (Connection& connection : connections_) {
    if (connection.state != Connection::State::kStream || (!path.empty() && connection.path != path)) continue;
    if (connection.head.size() + event.size() > kMostWaitingEvents) {
      connection.state = Connection::State::kEnded;
      continue;
    }
    connection.head += event;
    write_to(connection);
  }
  end_those_that_are_done();
}

void HttpServer::end_those_that_are_done() {
  const auto now = HttpClock::now();
  connections_.remove_if([&](const Connection& connection) {
    const bool ended = connection.state == Connection::State::kEnded || now > connection.until;
    if (ended) close(connection.socket);
    return ended;
  });
}

}  // namespace owt
