// MPI calls, and one end of a message between two processes. For mpi*.cpp of this folder.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "src/comm/communicator.h"

// Every MPI call goes through this macro. It throws MpiError with the call and MPI's text.
#define OWT_MPI(call) ::owt::detail::check_mpi((call), #call)

namespace owt {

// An error that MPI reports.
class MpiError : public Error {
 public:
  using Error::Error;
};

namespace detail {
void check_mpi(int result, const char* call);
}

using Requests = std::vector<MPI_Request>;

// Parts let a large tensor on a slow link show progress (stuck.h). Also, MPI counts bytes in an int.
constexpr int64_t kMostInRequest = 4 << 20;
constexpr int64_t kInPacket = 1024;  // bytes, including MPI's header

// A message is sent in parts. The last part is shorter than the others and may be empty, so that every other size than
// the sender's is detected.
class MpiMessage {
 public:
  // peer: the process at the other end; tag: the MPI tag, which identifies this message there
  MpiMessage(const Call& call, int peer, int tag) : call_(call), peer_(peer), tag_(tag) {}

  int peer() const { return peer_; }
  // The message is to be received and fits one packet, so testing for it late delays it by no more than the lateness.
  bool awaits_packet() const { return !sends() && bytes() <= kInPacket; }
  // Starts the message at the first call, then tests for progress. False: nothing has moved. Throws Error if a message
  // of another size arrives.
  bool move();
  bool over() const { return over_; }
  double ms() const { return ms_; }  // from its start to its end, once it is over

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
