// Sends any bytes, in pieces of any size, to a connection between two ranks, as a damaged program could.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "src/comm/tcp_connection.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  std::array<int, 2> ends{};
  owt::promise(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0, "a pair of sockets");
  owt::TcpConnection connection(ends[0], "rank 1");
  // Transfers of the tags 1 to 4: wanted ones, and one that waits to be accepted.
  static std::vector<std::byte> small(100), medium(300), large(200'000), offered(100'000);
  owt::TcpConnection::Transfer transfers[] = {{&connection, small.data(), std::ssize(small), 1},
                                              {&connection, medium.data(), std::ssize(medium), 2},
                                              {&connection, large.data(), std::ssize(large), 3}};
  owt::TcpConnection::Transfer sent{&connection, offered.data(), std::ssize(offered), 4};
  for (auto& transfer : transfers) connection.receive(transfer);
  connection.send(sent);
  const size_t piece = count == 0 ? 1 : std::max(size_t{1} + bytes[0], count / 16);
  std::array<char, 4096> answers;
  for (size_t begin = 0; begin < count && connection.open(); begin += piece) {
    if (::send(ends[1], bytes + begin, std::min(piece, count - begin), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) break;
    connection.set_ready(true, true);
    connection.move();
    while (recv(ends[1], answers.data(), answers.size(), MSG_DONTWAIT) > 0) {
    }
  }
  for (const auto& transfer : transfers)
    owt::promise(transfer.size >= -1 && transfer.size <= transfer.bytes, "a transfer fits its memory");
  ::close(ends[1]);
  return 0;
}
