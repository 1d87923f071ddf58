// Calls of MPI, and one end of a message between two processes. For mpi*.cpp of this folder.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "src/comm/communicator.h"

// Every call of MPI goes through this: throws MpiError with the call and MPI's text.
#define OWT_MPI(call) ::owt::detail::check_mpi((call), #call)

namespace owt {

// What MPI complains about.
class MpiError : public Error {
 public:
  using Error::Error;
};

namespace detail {
void check_mpi(int result, const char* call);
}

using Requests = std::vector<MPI_Request>;

// So that a large tensor on a slow link shows that it moves (stuck.h); MPI counts bytes in an int, besides.
constexpr int64_t kMostInRequest = 4 << 20;
constexpr int64_t kInPacket = 1024;  // bytes, with MPI's own

// It goes in parts, the last of which is one that is not full, and may be empty: so every other size than the sender's
// is found.
class MpiMessage {
 public:
  // peer: the process at the other end; tag: MPI's, by which it finds this message there
  MpiMessage(const Call& call, int peer, int tag) : call_(call), peer_(peer), tag_(tag) {}

  int peer() const { return peer_; }
  // It is to come, in one packet: who looks for it late delays it by that and no more.
  bool awaits_packet() const { return !sends() && bytes() <= kInPacket; }
  // Begins, the first time, and looks what has come about; false: nothing. Throws Error where another size comes.
  bool move();
  bool over() const { return over_; }
  double ms() const { return ms_; }  // from its beginning to its end, once it is over

 private:
  void begin();
  void check(size_t part, int error, const MPI_Status& status) const;
  bool sends() const { return call_.collective == Collective::kSend; }
  int64_t bytes() const { return call_.whole().bytes(); }
  int bytes_of(size_t part) const;

  Call call_;
  const int peer_, tag_;
  std::chrono::steady_clock::time_point begun_{};
  Requests requests_;  // by part
  std::vector<int> moved_now_;
  std::vector<MPI_Status> statuses_;
  size_t moved_ = 0;  // parts
  bool over_ = false;
  double ms_ = 0;
};

}  // namespace owt
