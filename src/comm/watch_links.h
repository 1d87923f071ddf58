// How the ranks connect for the watch, and their messages. For watch*.cpp.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "src/comm/stuck.h"
#include "src/comm/watch.h"
#include "src/system/sockets.h"

namespace owt {

// Kinds of messages of the watch.
enum WatchWord : uint32_t {
  kHello = 0x6f777401,  // with the token; answered by kWelcome
  kWelcome,
  kAlive,  // text: the rank's Standing, to rank 0
  kGoodbye,
  kFailed,        // rank: the failed one; text: the reason
  kAcknowledged,  // answers kFailed
  kLost,          // text: the lost rank and the reason
};

// The interval between signs of life.
std::chrono::milliseconds alive_every();

// A connection to another rank, and what was received over it.
struct WatchLink {
  int rank = 0;
  MessageConnection connection;
  std::chrono::steady_clock::time_point heard;
  std::optional<Standing> standing{};
  bool left = false;          // has said goodbye
  bool acknowledged = false;  // has answered this rank's report of its failure
  bool given_up = false;      // although it may be alive
};

// Connects to the rendezvous with this address as this rank. here: it is on this host. Throws Error with the port and
// the reason of each address.
MessageConnection greet(const std::string& address, int rank, bool here);
// The rank that has greeted with the token, which is answered. A stranger that sends anything else is closed.
std::optional<int> greeted(MessageConnection& stranger, uint64_t token, int ranks);

// Rank 0's connections to all others, which connect to its post; another rank's connection to rank 0. Throws Error
// after start_timeout().
std::vector<WatchLink> links_of_rank_0(const Watch::Rendezvous& rendezvous, const std::vector<Peer>& peers);
std::vector<WatchLink> links_to_rank_0(const std::string& address, int rank, const std::vector<Peer>& peers);

}  // namespace owt
