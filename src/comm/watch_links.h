// How the ranks come together for the watch, and what they say to each other. For watch*.cpp.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "src/comm/sockets.h"
#include "src/comm/stuck.h"
#include "src/comm/watch.h"

namespace owt {

// What a message of the watch says.
enum WatchWord : uint32_t {
  kHello = 0x6f777401,  // with the token; answered by kWelcome
  kWelcome,
  kAlive,  // text: the rank's Standing, to rank 0
  kGoodbye,
  kFailed,  // rank: who; text: why
  kTold,    // answers kFailed
  kLost,    // text: about whom and what
};

// How often a rank says that it lives.
std::chrono::milliseconds alive_every();

// A connection to another rank, and what has come over it.
struct WatchLink {
  int rank = 0;
  Connection connection;
  std::chrono::steady_clock::time_point heard;
  std::optional<Standing> standing{};
  bool left = false;      // has said goodbye
  bool told = false;      // has answered what this rank said of its failure
  bool given_up = false;  // though it may live
};

// Rank 0's to all others, who come to its post; another rank's to rank 0. Throws Error after start_timeout().
std::vector<WatchLink> links_of_rank_0(const Watch::Post& post, const std::vector<Peer>& peers);
std::vector<WatchLink> links_to_rank_0(const std::string& address, int rank, const std::vector<Peer>& peers);

}  // namespace owt
