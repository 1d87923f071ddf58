// Detects that another process of the launch has ended, hangs, or cannot be reached. It does not use MPI, which cannot
// detect this. Rank 0 keeps a TCP connection to every other rank; both sides send a sign of life every second.
//   - A connection is closed without a goodbye: the process has ended (also by SIGKILL); noticed at once.
//   - Silence for the timeout: the process is stopped or hangs in the kernel, or the link is down.
//   - A live process for which all others wait indefinitely: see stuck.h. Every rank reports its state to rank 0.
// Rank 0 reports lost ranks to all others; the others detect the loss of rank 0 themselves. When rank 0 ends, it kills
// processes of its own host that were given up but still exist, such as stopped ones, if their loss is tolerated.
// Otherwise the launcher would wait for them forever.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/comm/lost_ranks.h"
#include "src/system/sockets.h"

namespace owt {

// Silence after which a rank is lost, for every watch of this process; 20 s by default. At least 0.5 s.
void set_watch_timeout(double seconds);
double watch_timeout();
// Silence after which a rank that seems to compute counts as hanging, while the others wait for it; 600 s by default.
void set_stall_timeout(double seconds);
double stall_timeout();
// Time limit for each part of the start: MPI_Init, the first exchange, and the connections of all ranks to rank 0. No
// watch observes the other ranks yet. The default is 60 s, or the environment variable OWT_START_TIMEOUT.
double start_timeout();  // throws Error if the environment variable is invalid
// The rank, below `ranks`, whose hello with this token the message is. The message may come from any program.
std::optional<int> rank_of_hello(const Message& message, uint64_t token, int ranks);

struct Peer {
  std::string host;
  int process = 0;
  std::string process_space{};  // the boot and PID namespace in which the process number is valid; empty: unknown
};
// The process space of this process.
std::string process_space();

class Watch {
 public:
  // The address of rank 0 for the others: IP addresses, port and a random token, as text.
  class Rendezvous {
   public:
    Rendezvous();  // starts to listen; throws Error
    ~Rendezvous();
    Rendezvous(const Rendezvous&) = delete;
    Rendezvous& operator=(const Rendezvous&) = delete;
    std::string address() const;
    int socket() const { return socket_; }
    uint64_t token() const { return token_; }

   private:
    int socket_ = -1, port_ = 0;
    uint64_t token_ = 0;
  };

  // Called once by the watch's thread if this process has not ended `grace` after `lost_ranks` has recorded a loss.
  struct Overdue {
    std::chrono::milliseconds grace;
    std::function<void()> call;
  };

  // For rank 0, and for the others. Returns when all ranks are connected; throws Error after start_timeout(). `peers`
  // by rank, `overdue` by grace.
  Watch(Rendezvous& rendezvous, std::vector<Peer> peers, LostRanks& lost_ranks, std::vector<Overdue> overdue);
  Watch(const std::string& address, int rank, std::vector<Peer> peers, LostRanks& lost_ranks,
        std::vector<Overdue> overdue);
  ~Watch();  // closes the connections; the others lose this rank unless it has said goodbye
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Announces that the end of this process is no loss. Returns when the others know.
  void say_goodbye();
  // Reports to all other ranks that this rank has failed, with one line. Returns when they have answered, after 3 s at
  // most. For a rank other than 0, rank 0 answers and informs the others.
  void say_failed(const std::string& text);

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace owt
