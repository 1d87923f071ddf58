// One end of a message between two processes. For the communication thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "src/comm/communicator.h"
#include "src/comm/links.h"

namespace owt {

constexpr int64_t kInPacket = 1024;  // bytes, including the header of the links

// A message is sent in parts. The last part is shorter than the others and may be empty, so that every other size than
// the sender's is detected.
class LinkMessage {
 public:
  // peer: the process at the other end; tag: identifies this message there
  LinkMessage(const Call& call, int peer, int tag) : call_(call), peer_(peer), tag_(tag) {}

  int peer() const { return peer_; }
  // The message is to be received and fits one packet, so testing for it late delays it by no more than the lateness.
  bool awaits_packet() const { return !sends() && bytes() <= kInPacket; }
  // Starts the message at the first call, then tests for progress. False: nothing has moved. Throws Error if a message
  // of another size arrives.
  bool move(ProcessLinks& links);
  bool over() const { return over_; }
  double ms() const { return ms_; }  // from its start to its end, once it is over

 private:
  void begin(ProcessLinks& links);
  void check(const ProcessLinks::Ended& part) const;
  bool sends() const { return call_.collective == Collective::kSend; }
  int64_t bytes() const { return call_.whole().bytes(); }
  int64_t bytes_of(size_t part) const;

  Call call_;
  const int peer_, tag_;
  std::chrono::steady_clock::time_point begun_{};
  Requests requests_;  // by part
  size_t moved_ = 0;   // parts
  bool over_ = false;
  double ms_ = 0;
};

}  // namespace owt
