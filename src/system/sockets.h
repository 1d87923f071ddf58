// Non-blocking TCP connections for short messages. For the watch, and for the start of processes over TCP.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace owt {

struct Message {
  uint32_t kind = 0;
  int32_t rank = 0;
  std::string text;
};

// Calls take() for each message at the beginning of `bytes`, from any sender, and removes it. False: the rest is not a
// message.
bool take_messages(std::string& bytes, const std::function<void(const Message&)>& take);

class MessageConnection {
 public:
  MessageConnection() = default;
  explicit MessageConnection(int socket);  // takes ownership
  ~MessageConnection() { close(); }
  MessageConnection(MessageConnection&& other) noexcept { *this = std::move(other); }
  MessageConnection& operator=(MessageConnection&& other) noexcept;

  bool open() const { return socket_ >= 0; }
  bool sent_all() const { return out_.empty(); }
  int socket() const { return socket_; }
  void close();
  int release();  // the socket, which is then the caller's; nothing may be left to send

  void send(const Message& message);  // sends what is possible at once; flush() sends the rest
  void flush();
  // Calls take(message) for each message that has arrived; if there are many, for the first ones, and the socket stays
  // readable. Closes the connection if the other side has, or if it sent something that is not a message.
  void receive(const std::function<void(const Message&)>& take);

 private:
  int socket_ = -1;
  std::string in_, out_;
};

// Raises the limit on open files of this process to `count` if it is lower and the system allows it; warns if not.
void allow_open_files(int64_t count);

// Returns when a socket becomes readable, or after the time at the latest.
void wait_readable(const std::vector<int>& sockets, std::chrono::milliseconds longest);

// Listens on a free port of all addresses. Throws Error.
struct Listener {
  int socket = -1, port = 0;
};
Listener listen_anywhere();
// Listens on this port: of the address if it is a loopback address, otherwise of all addresses. Throws Error.
Listener listen_on(const std::string& address, int port);
// The listener that this process inherited; none if this number is no listening socket.
std::optional<Listener> inherited_listener(int socket);
MessageConnection accept_from(int listener);                     // not open if no connection is waiting
bool is_loopback(const std::string& address);                    // address: numeric
std::vector<std::string> addresses_of_host();                    // numeric; loopback last
std::vector<std::string> addresses_of(const std::string& host);  // numeric; throws Error if there are none
std::string address_of_peer(int socket);                         // numeric; empty: not over a network, or on this host
// Throws Error with the reason.
MessageConnection connect_to(const std::string& address, int port, std::chrono::milliseconds patience);

}  // namespace owt
