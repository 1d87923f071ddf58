#include "src/comm/watch_links.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <sstream>

#include "src/comm/launch.h"

namespace owt {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr auto kConnect = Milliseconds(3000);  // per address
constexpr int64_t kOtherFiles = 512;           // files that rank 0 has open in addition to its connections

Clock::time_point start_ends() {
  return Clock::now() + std::chrono::duration_cast<Milliseconds>(std::chrono::duration<double>(start_timeout()));
}

void welcome(MessageConnection& stranger, uint64_t token, int ranks, std::vector<WatchLink>& links) {
  const std::optional<int> rank = greeted(stranger, token, ranks);
  if (!rank) return;
  // A rank that connects again has given up its first connection.
  std::erase_if(links, [&](const WatchLink& link) { return link.rank == *rank; });
  links.push_back({*rank, std::move(stranger), Clock::now()});
}

[[noreturn]] void fail_missing(const std::vector<Peer>& peers, const std::vector<WatchLink>& links) {
  std::string missing;
  for (int r = 1; r < std::ssize(peers); ++r) {
    const bool here = std::any_of(links.begin(), links.end(), [&](const WatchLink& link) { return link.rank == r; });
    if (!here) missing += concat(missing.empty() ? "" : ", ", r, " on ", peers[static_cast<size_t>(r)].host);
  }
  fail("ranks that have not connected to rank 0 on ", peers[0].host, " over TCP within ", start_timeout(),
       " s: ", missing, "; let the hosts of a run connect to each other, or raise OWT_START_TIMEOUT");
}

// Says hello at this address, and returns when rank 0 has answered. Throws Error with the reason otherwise.
MessageConnection say_hello(const std::string& address, int port, int rank, const std::string& token) {
  MessageConnection connection = connect_to(address, port, kConnect);
  connection.send({kHello, rank, token});
  bool welcome = false;
  const auto give_up = start_ends();
  while (connection.open() && !welcome && Clock::now() < give_up) {
    connection.flush();  // the hello may not be sent yet
    wait_readable({connection.socket()}, Milliseconds(100));
    connection.receive(
        [&](const Message& message) { welcome = welcome || (message.kind == kWelcome && message.text == token); });
  }
  if (!welcome && connection.open()) fail("connected, but no answer within ", start_timeout(), " s");
  if (!welcome) fail("somebody else answers, or rank 0 has ended");
  return connection;
}

}  // namespace

std::optional<int> greeted(MessageConnection& stranger, uint64_t token, int ranks) {
  std::optional<int> rank;
  bool known = true;
  stranger.receive([&](const Message& message) {
    rank = rank_of_hello(message, token, ranks);
    known = rank.has_value();
  });
  if (!known) stranger.close();
  if (rank) stranger.send({kWelcome, 0, std::to_string(token)});
  return rank;
}

MessageConnection greet(const std::string& address, int rank, bool here) {
  std::istringstream text(address);
  std::string token, tried;
  int port = 0;
  text >> token >> port;
  std::vector<std::string> addresses{std::istream_iterator<std::string>(text), std::istream_iterator<std::string>()};
  // The addresses that other hosts try last are tried first on this host.
  if (here) std::reverse(addresses.begin(), addresses.end());
  for (const std::string& one : addresses) {
    try {
      return say_hello(one, port, rank, token);
    } catch (const Error& e) {
      tried += concat(tried.empty() ? "" : ", ", one, ": ", e.what());
    }
  }
  fail("port ", port, " (", tried, ")");
}

std::optional<int> rank_of_hello(const Message& message, uint64_t token, int ranks) {
  const bool ours = message.kind == kHello && message.text == std::to_string(token);
  if (!ours || message.rank < 1 || message.rank >= ranks) return {};
  return message.rank;
}

std::vector<WatchLink> links_of_rank_0(const Watch::Rendezvous& rendezvous, const std::vector<Peer>& peers) {
  allow_open_files(std::ssize(peers) + kOtherFiles);
  std::vector<WatchLink> links;
  std::vector<MessageConnection> strangers;
  const auto give_up = start_ends();
  auto next_alive = Clock::now();
  while (links.size() + 1 < peers.size()) {
    const auto now = Clock::now();
    if (now >= give_up || (launch().changes() && launch().is_over())) fail_missing(peers, links);
    if (now >= next_alive) {  // connected ranks already listen
      for (WatchLink& link : links) link.connection.send({kAlive, 0, ""});
      next_alive = now + alive_every();
    }
    std::vector<int> sockets{rendezvous.socket()};
    for (const MessageConnection& stranger : strangers) sockets.push_back(stranger.socket());
    wait_readable(sockets, Milliseconds(100));
    for (MessageConnection come = accept_from(rendezvous.socket()); come.open();
         come = accept_from(rendezvous.socket()))
      strangers.push_back(std::move(come));
    for (MessageConnection& stranger : strangers)
      welcome(stranger, rendezvous.token(), static_cast<int>(peers.size()), links);
    std::erase_if(strangers, [](const MessageConnection& stranger) { return !stranger.open(); });
  }
  return links;
}

std::vector<WatchLink> links_to_rank_0(const std::string& address, int rank, const std::vector<Peer>& peers) {
  const std::string& here = peers[static_cast<size_t>(rank)].host;
  std::vector<WatchLink> links;
  try {
    links.push_back({0, greet(address, rank, peers[0].host == here), Clock::now()});
  } catch (const Error& e) {
    fail("rank ", rank, " on ", here, " cannot reach rank 0 on ", peers[0].host, " over TCP, ", e.what(),
         "; let the hosts of a run connect to each other");
  }
  return links;
}

Watch::Rendezvous::Rendezvous() {
  const Listener listener = listen_anywhere();
  socket_ = listener.socket;
  port_ = listener.port;
  std::random_device random;
  token_ = (uint64_t{random()} << 32) | random();
}

Watch::Rendezvous::~Rendezvous() { close(socket_); }

std::string Watch::Rendezvous::address() const {
  std::string text = concat(token_, ' ', port_);
  for (const std::string& one : addresses_of_host()) text += ' ' + one;
  return text;
}

}  // namespace owt
