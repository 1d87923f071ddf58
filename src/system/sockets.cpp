#include "src/system/sockets.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "src/system/check.h"
#include "src/system/log_lines.h"

namespace owt {
namespace {

struct MessageHeader {
  uint32_t kind;
  int32_t rank;
  uint32_t bytes;
};
constexpr uint32_t kMostBytes = 1 << 16;

std::string why(int error) { return std::strerror(error); }

// A numeric address in the system's form.
using Address = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
Address parsed(const std::string& text, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(text.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) fail("'", text, "' is no address");
  return {found, &freeaddrinfo};
}

int socket_for(const Address& address) {
  return ::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

// -1 if this host has no addresses of this kind, or the port is taken.
int listening_socket(const std::string& any, int port = 0) {
  const Address address = parsed(any, port);
  const int socket = socket_for(address);
  if (socket < 0) return -1;
  const int off = 0, on = 1;
  if (port != 0) setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->ai_family == AF_INET6) setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(socket, address->ai_addr, address->ai_addrlen) == 0 && listen(socket, SOMAXCONN) == 0) return socket;
  const int error = errno;
  ::close(socket);
  errno = error;
  return -1;
}

int port_of(int socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size);
  const in_port_t port = own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&own)->sin6_port
                                                   : reinterpret_cast<const sockaddr_in*>(&own)->sin_port;
  return ntohs(port);
}

// The numeric text. Empty if it is no IP address, or one that needs an interface name (link-local).
std::string text_of(const sockaddr* address) {
  char text[NI_MAXHOST] = "";
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (address->sa_family == AF_INET || address->sa_family == AF_INET6)
    getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return std::strchr(text, '%') ? "" : text;
}

// Continues to wait after a signal.
bool becomes_writable(int socket, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const auto give_up = Clock::now() + patience;
  pollfd polled{socket, POLLOUT, 0};
  int ready = -1;
  do {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(give_up - Clock::now());
    ready = poll(&polled, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

}  // namespace

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

bool take_messages(std::string& bytes, const std::function<void(const Message&)>& take) {
  size_t begin = 0;
  MessageHeader header{};
  while (bytes.size() - begin >= sizeof header) {
    std::memcpy(&header, bytes.data() + begin, sizeof header);
    if (header.bytes > kMostBytes) return false;
    if (bytes.size() - begin - sizeof header < header.bytes) break;
    take({header.kind, header.rank, bytes.substr(begin + sizeof header, header.bytes)});
    begin += sizeof header + header.bytes;
  }
  bytes.erase(0, begin);
  return true;
}

MessageConnection::MessageConnection(int socket) : socket_(socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

MessageConnection& MessageConnection::operator=(MessageConnection&& other) noexcept {
  close();
  socket_ = std::exchange(other.socket_, -1);
  in_ = std::move(other.in_);
  out_ = std::move(other.out_);
  return *this;
}

void MessageConnection::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
  out_.clear();
}

int MessageConnection::release() {
  OWT_CHECK(out_.empty() && in_.empty());
  return std::exchange(socket_, -1);
}

void MessageConnection::send(const Message& message) {
  if (!open()) return;
  const MessageHeader header{message.kind, message.rank,
                             static_cast<uint32_t>(std::min<size_t>(message.text.size(), kMostBytes))};
  out_.append(reinterpret_cast<const char*>(&header), sizeof header);
  out_.append(message.text, 0, header.bytes);
  flush();
}

void MessageConnection::flush() {
  while (open() && !out_.empty()) {
    const ssize_t sent = ::send(socket_, out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    // receive() reports a broken connection, after all data sent before it broke.
    if (sent < 0 && errno != EAGAIN) out_.clear();
    if (sent < 0) return;
    out_.erase(0, static_cast<size_t>(sent));
  }
}

void MessageConnection::receive(const std::function<void(const Message&)>& take) {
  constexpr int kMostParts = 64;  // one sender must not block all others
  char part[4096];
  bool ended = false;
  for (int parts = 0; open() && !ended && parts < kMostParts; ++parts) {
    const ssize_t got = recv(socket_, part, sizeof part, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    ended = got <= 0;
    if (got > 0) in_.append(part, static_cast<size_t>(got));
    ended = !take_messages(in_, take) || ended;
  }
  if (ended) close();
}

void allow_open_files(int64_t count) {
  rlimit limit{};
  const auto wanted = static_cast<rlim_t>(count);
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < wanted)
    log_warning(
        concat("rank 0 may need ", count, " open files, and the limit is ", limit.rlim_max, "; raise it (ulimit -Hn)"));
}

void wait_readable(const std::vector<int>& sockets, std::chrono::milliseconds longest) {
  std::vector<pollfd> polled;
  for (const int socket : sockets) polled.push_back({socket, POLLIN, 0});
  poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(longest.count(), 0)));
}

Listener listen_anywhere() {
  Listener listener;
  listener.socket = listening_socket("::");
  if (listener.socket < 0) listener.socket = listening_socket("0.0.0.0");
  if (listener.socket < 0) fail("cannot listen on a TCP port: ", why(errno));
  listener.port = port_of(listener.socket);
  return listener;
}

Listener listen_on(const std::string& address, int port) {
  int socket = -1;
  if (is_loopback(address)) {
    socket = listening_socket(address, port);
  } else {
    socket = listening_socket("::", port);
    if (socket < 0 && errno != EADDRINUSE) socket = listening_socket("0.0.0.0", port);
  }
  if (socket < 0) fail(why(errno));
  return {socket, port_of(socket)};
}

std::optional<Listener> inherited_listener(int socket) {
  int listens = 0;
  socklen_t size = sizeof listens;
  if (getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens) return {};
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
  fcntl(socket, F_SETFD, FD_CLOEXEC);
  return Listener{socket, port_of(socket)};
}

std::vector<std::string> addresses_of(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) fail("no address of '", host, "' is known: ", gai_strerror(error));
  std::vector<std::string> addresses;
  for (const addrinfo* one = found; one; one = one->ai_next) {
    const std::string text = text_of(one->ai_addr);
    if (!text.empty() && std::ranges::find(addresses, text) == addresses.end()) addresses.push_back(text);
  }
  freeaddrinfo(found);
  if (addresses.empty()) fail("'", host, "' has no address that other hosts can use");
  return addresses;
}

std::string address_of_peer(int socket) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return "";
  std::string text = text_of(reinterpret_cast<const sockaddr*>(&peer));
  if (text.starts_with("::ffff:")) text.erase(0, 7);  // an IPv4 address
  return is_loopback(text) ? "" : text;
}

MessageConnection accept_from(int listener) {
  const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  return socket < 0 ? MessageConnection() : MessageConnection(socket);
}

std::vector<std::string> addresses_of_host() {
  std::vector<std::string> addresses, loopback;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {"127.0.0.1"};
  for (const ifaddrs* one = all; one; one = one->ifa_next) {
    if (!one->ifa_addr || !(one->ifa_flags & IFF_UP)) continue;
    const std::string text = text_of(one->ifa_addr);
    if (!text.empty()) (one->ifa_flags & IFF_LOOPBACK ? loopback : addresses).push_back(text);
  }
  freeifaddrs(all);
  addresses.insert(addresses.end(), loopback.begin(), loopback.end());
  return addresses;
}

MessageConnection connect_to(const std::string& address, int port, std::chrono::milliseconds patience) {
  const Address to = parsed(address, port);
  const int socket = socket_for(to);
  if (socket < 0) fail(why(errno));
  MessageConnection connection(socket);
  if (connect(socket, to->ai_addr, to->ai_addrlen) == 0) return connection;
  if (errno != EINPROGRESS) fail(why(errno));
  if (!becomes_writable(socket, patience)) fail("no answer");
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) fail(why(error));
  return connection;
}

}  // namespace owt
