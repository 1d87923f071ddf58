// TCP connections that carry short messages and never block. For watch.cpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace owt {

struct Message {
  uint32_t kind = 0;
  int32_t rank = 0;
  std::string text;
};

// Gives take() the messages that `bytes`, anybody's, begins with, and removes them. False: what follows is none.
bool take_messages(std::string& bytes, const std::function<void(const Message&)>& take);

class Connection {
 public:
  Connection() = default;
  explicit Connection(int socket);  // takes it over
  ~Connection() { close(); }
  Connection(Connection&& other) noexcept { *this = std::move(other); }
  Connection& operator=(Connection&& other) noexcept;

  bool open() const { return socket_ >= 0; }
  int socket() const { return socket_; }
  void close();

  void send(const Message& message);  // as far as it goes at once; flush() goes on
  void flush();
  // Calls take(message) for each that has come, or for the first ones of many: the socket stays readable then. Closes
  // the connection where the other side has, and where it says what is no message.
  void receive(const std::function<void(const Message&)>& take);

 private:
  int socket_ = -1;
  std::string in_, out_;
};

// Raises the limit on open files of this process to `count` where it is lower and the system lets it; a warning where
// not.
void allow_open_files(int64_t count);

// The first socket that becomes readable wakes it, at the latest after the time.
void wait_readable(const std::vector<int>& sockets, std::chrono::milliseconds longest);

// Listens on a free port of all addresses. Throws Error.
struct Listener {
  int socket = -1, port = 0;
};
Listener listen_anywhere();
Connection accept_from(int listener);          // not open: nobody there
std::vector<std::string> addresses_of_host();  // numbers; loopback last
// Throws Error with the reason.
Connection connect_to(const std::string& address, int port, std::chrono::milliseconds patience);

}  // namespace owt
