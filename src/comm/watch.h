// Finds out when another process of the launch has ended, hangs, or cannot be reached any more; without MPI, which
// cannot tell. Rank 0 keeps a TCP connection to every other rank, over which both sides say each second that they live.
//   - A connection that is closed without a goodbye: the process has ended (also by SIGKILL); noticed at once.
//   - Silence for the timeout: the process is stopped or hangs in the kernel, or the link is down.
//   - A process that lives, but for which all others wait in vain: see stuck.h. Every rank tells rank 0 what it does.
// Rank 0 tells all others whom it lost; the others notice by themselves when they lose rank 0. When it ends it
// kills the processes of its own host whose loss is tolerated, that were given up and are still there, as stopped ones
// are: the launcher would wait for them for ever.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/comm/lost_ranks.h"
#include "src/comm/sockets.h"

namespace owt {

// Silence after which a rank is lost, for every watch of this process; 20 s until it is set. At least 0.5 s.
void set_watch_timeout(double seconds);
double watch_timeout();
// After which a rank that seems to compute counts as hanging, where the others wait for it; 600 s until it is set.
void set_stall_timeout(double seconds);
double stall_timeout();
// How long the start may take: MPI_Init, the first exchange, and until all have connected to rank 0, each; since no
// watch looks for the others yet. 60 s, or what the environment variable OWT_START_TIMEOUT says, until it is set.
void set_start_timeout(double seconds);
double start_timeout();  // throws Error for nonsense in the environment
// The rank, of so many, whose hello with this token the message is. It may be anybody's.
std::optional<int> rank_of_hello(const Message& message, uint64_t token, int ranks);

struct Peer {
  std::string host;
  int process = 0;
  std::string process_space{};  // the boot and PID namespace in which the number is valid; empty: unknown
};
// This process's.
std::string process_space();

class Watch {
 public:
  // Where the others find rank 0: addresses, port and a random token, as text.
  class Post {
   public:
    Post();  // starts to listen; throws Error
    ~Post();
    Post(const Post&) = delete;
    Post& operator=(const Post&) = delete;
    std::string address() const;
    int socket() const { return socket_; }
    uint64_t token() const { return token_; }

   private:
    int socket_ = -1, port_ = 0;
    uint64_t token_ = 0;
  };

  // What the watch's thread calls, once, where this process has not ended `grace` after `lost_ranks` has heard of one.
  struct Overdue {
    std::chrono::milliseconds grace;
    std::function<void()> call;
  };

  // For rank 0, and for the others. Returns when all have come; throws Error after start_timeout(). `peers` by rank,
  // `overdue` by grace.
  Watch(Post& post, std::vector<Peer> peers, LostRanks& lost_ranks, std::vector<Overdue> overdue);
  Watch(const std::string& address, int rank, std::vector<Peer> peers, LostRanks& lost_ranks,
        std::vector<Overdue> overdue);
  ~Watch();  // closes the connections; the others lose this rank unless it has said goodbye
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // From now on the end of this process is no loss. Returns when that is said.
  void say_goodbye();
  // Tells all others that this rank has failed, with one line, and returns when they have answered, after 3 s at most.
  // A rank other than 0 is answered by rank 0, which tells the others.
  void say_failed(const std::string& text);

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace owt
