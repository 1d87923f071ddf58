#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>

#include "src/comm/links.h"
#include "src/comm/tcp_connection.h"
#include "src/comm/tcp_meeting.h"

namespace owt {
namespace {

constexpr auto kPacketsCome = std::chrono::microseconds(50);

class TcpLinks : public ProcessLinks {
 public:
  explicit TcpLinks(const ProcessLaunch& launch)
      : launch_(launch), ready_(epoll_create1(EPOLL_CLOEXEC)), bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    add(bell_, EPOLLIN, nullptr);  // fails if one of the two was not made
  }
  ~TcpLinks() override {
    close(bell_);
    close(ready_);
  }
  TcpLinks(const TcpLinks&) = delete;
  TcpLinks& operator=(const TcpLinks&) = delete;

  const char* name() const override { return "TCP"; }

  std::vector<std::string> start(const std::string& mine, double seconds) override {
    const TcpMeeting all = meet_over_tcp(launch_, mine, seconds);
    for (size_t rank = 0; rank < all.sockets.size(); ++rank) {
      connections_.push_back(nullptr);
      if (all.sockets[rank] < 0) continue;
      connections_.back() = std::make_unique<TcpConnection>(all.sockets[rank], concat("rank ", rank));
      // The system reports each change once (EPOLLET); the connection remembers it.
      add(all.sockets[rank], EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, connections_.back().get());
    }
    return all.texts;
  }

  void send(Requests& requests, const std::byte* from, int64_t bytes, int to, int tag) override {
    TcpConnection::Transfer& transfer = begin(requests, const_cast<std::byte*>(from), bytes, to, tag);
    transfer.connection->send(transfer);
  }

  void receive(Requests& requests, std::byte* to, int64_t bytes, int from, int tag) override {
    TcpConnection::Transfer& transfer = begin(requests, to, bytes, from, tag);
    transfer.connection->receive(transfer);
  }

  const std::vector<Ended>& test(Requests& requests) override {
    look(std::chrono::milliseconds(0));
    for (const auto& connection : connections_)
      if (connection) connection->move();
    ended_.clear();
    for (size_t i = 0; i < requests.size(); ++i) {
      auto* const transfer = reinterpret_cast<TcpConnection::Transfer*>(requests[i]);
      if (!transfer) continue;
      if (!transfer->ended && !transfer->connection->open()) throw LinkError(transfer->connection->why_closed());
      if (!transfer->ended) continue;
      ended_.push_back({i, transfer->size});
      unused_.push_back(transfer);
      requests[i] = 0;
    }
    return ended_;
  }

  bool can_rest() const override { return true; }
  void rest(std::chrono::milliseconds longest) override {
    const auto has = [&](bool (TcpConnection::*what)() const) {
      return std::ranges::any_of(connections_, [&](const auto& one) { return one && (one.get()->*what)(); });
    };
    if (has(&TcpConnection::has_more)) return;
    // Waking up for every packet of a large transfer would take much of a core.
    if (has(&TcpConnection::receives_pieces)) std::this_thread::sleep_for(kPacketsCome);
    look(longest);
  }
  void wake() override { eventfd_write(bell_, 1); }
  void finish() override { connections_.clear(); }

 private:
  TcpConnection::Transfer& begin(Requests& requests, std::byte* memory, int64_t bytes, int peer, int tag) {
    if (unused_.empty()) unused_.push_back(&transfers_.emplace_back());
    TcpConnection::Transfer& transfer = *unused_.back();
    unused_.pop_back();
    transfer = {connections_[static_cast<size_t>(peer)].get(), memory, bytes, tag};
    requests.push_back(reinterpret_cast<std::uintptr_t>(&transfer));
    return transfer;
  }

  void add(int socket, uint32_t events, TcpConnection* connection) const {
    epoll_event event{};
    event.events = events;
    event.data.ptr = connection;
    if (epoll_ctl(ready_, EPOLL_CTL_ADD, socket, &event) != 0)
      fail("cannot wait for connections: ", std::strerror(errno), "; raise the limit on open files (ulimit -n)");
  }

  // Learns which connections are ready; waits for one.
  void look(std::chrono::milliseconds longest) {
    std::array<epoll_event, 64> events;
    const int count =
        epoll_wait(ready_, events.data(), static_cast<int>(events.size()), static_cast<int>(longest.count()));
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      auto* const connection = static_cast<TcpConnection*>(event.data.ptr);
      eventfd_t rings = 0;
      if (connection)
        connection->set_ready(event.events & (EPOLLIN | EPOLLERR), event.events & EPOLLOUT,
                              event.events & (EPOLLRDHUP | EPOLLHUP));
      else
        eventfd_read(bell_, &rings);
    }
  }

  const ProcessLaunch launch_;
  const int ready_, bell_;
  std::vector<std::unique_ptr<TcpConnection>> connections_;  // by rank; none to this process
  std::deque<TcpConnection::Transfer> transfers_;            // where they are does not change
  std::vector<TcpConnection::Transfer*> unused_;
  std::vector<Ended> ended_;
};

}  // namespace

std::unique_ptr<ProcessLinks> make_tcp_links(const ProcessLaunch& launch) { return std::make_unique<TcpLinks>(launch); }

}  // namespace owt
