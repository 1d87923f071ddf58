#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <deque>

#include "src/comm/links.h"
#include "src/comm/tcp_connection.h"
#include "src/comm/tcp_meeting.h"

namespace owt {
namespace {

class TcpLinks : public ProcessLinks {
 public:
  explicit TcpLinks(const ProcessLaunch& launch) : launch_(launch), ready_(epoll_create1(EPOLL_CLOEXEC)) {}
  ~TcpLinks() override { close(ready_); }
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
      epoll_event event{};
      event.events = EPOLLIN | EPOLLOUT | EPOLLET;
      event.data.ptr = connections_.back().get();
      epoll_ctl(ready_, EPOLL_CTL_ADD, all.sockets[rank], &event);
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
    move();
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

  void move() {
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(ready_, events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      static_cast<TcpConnection*>(event.data.ptr)
          ->set_ready(event.events & (EPOLLIN | EPOLLHUP | EPOLLERR), event.events & EPOLLOUT);
    }
    for (const auto& connection : connections_)
      if (connection) connection->move();
  }

  const ProcessLaunch launch_;
  const int ready_;
  std::vector<std::unique_ptr<TcpConnection>> connections_;  // by rank; none to this process
  std::deque<TcpConnection::Transfer> transfers_;            // where they are does not change
  std::vector<TcpConnection::Transfer*> unused_;
  std::vector<Ended> ended_;
};

}  // namespace

std::unique_ptr<ProcessLinks> make_tcp_links(const ProcessLaunch& launch) { return std::make_unique<TcpLinks>(launch); }

}  // namespace owt
