// The state of a run at a step, in the host memory of its ranks, so that the run continues after ranks were lost or
// have joined.
//
// Each rank copies its own part of all tensors (mirrored.h) and sends what no other rank has to the next rank:
// rank + 1, after the last rank 0. So all elements have two holders, and the loss of any one rank loses none. A rank
// keeps the latest copies and the ones before, because the latest may be incomplete when a rank is lost.
//
// With b bytes of this rank's tensors, of which s bytes are on no other rank, and p such bytes of the previous rank,
// a renewal sends s bytes, and the copies take 2 (b + p) bytes of host memory. Between restore() and the second
// renewal after it they include the copies of the earlier ranks. On a GPU messages go through memory for two pieces of
// a tensor (kPieceBytes). mirror_needs() (src/predict/mirror_need.h) says the same of a plan.
//
// Use:
//   - renew() every some steps; complete() before a rank leaves in order, and at the end of the run.
//   - After a loss, leave_world() while the communicator still exists; then, over the communicator of the next ranks,
//     agree() before a plan is made, and restore() into the new worker. A rank that joins has an empty Mirror.
//
// Functions that are collective throw Aborted if a rank is lost meanwhile. The copies then stay usable.
#pragma once

#include <atomic>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "src/comm/communicator.h"
#include "src/files/run_state.h"
#include "src/mirror/host_messages.h"
#include "src/mirror/mirrored.h"
#include "src/mirror/restore.h"

namespace owt {

class Mirror {
 public:
  Mirror() = default;
  ~Mirror() { leave_world(); }
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  // Collective, between steps, when none is under way and the weights are settled: completes the copies before, and
  // copies this rank's tensors. On the CPU the messages then move beside the next steps, in a thread; on a GPU the host
  // waits for them. Until leave_world() all renewals copy the same tensors.
  void renew(const Mirrored& of, const RunState& state);
  // Collective: returns when the latest copies are complete on all ranks.
  void complete();
  // Forgets the ranks and keeps the copies. Messages in transit are dropped. Call it while the communicator exists.
  void leave_world();

  // Collective: chooses the newest step of which the ranks together have all elements of all tensors, and returns its
  // state on all ranks; nullopt: there is none. Frees the copies of other steps. device: of the communicator's tensors.
  std::optional<RunState> agree(Communicator& comm, Device device);
  // Collective over the same ranks, after agree() has returned a state: writes it into the tensors. An element comes
  // from this rank's copies if they have it, else from the lowest rank with it, in messages of at most kPieceBytes or a
  // row of the tensor. Returns the bytes that this rank has received.
  int64_t restore(const Mirrored& into);

  int64_t bytes() const;  // host memory of the copies
  // Bytes that this rank sends in a renewal, after the first one.
  int64_t bytes_per_renewal() const { return layout_.sent * 4; }

 private:
  // Parts of tensors, one after the other in memory.
  struct StoredParts {
    std::vector<MirroredPart> parts;
    Tensor memory;  // f32, on the host; of_previous has none before its messages have arrived
  };
  struct StepCopy {
    RunState state;
    StoredParts own, of_previous;
  };
  // The messages of the newest copy.
  struct Passing {
    Tensor sent, received;
    std::thread thread;
    std::atomic<bool> over{true};
    std::exception_ptr failure;
  };
  // What the copies of a generation of ranks have in common.
  struct CopyLayout {
    std::vector<size_t> order;  // indexes of the tensors in memory; what is sent comes first
    std::vector<MirroredPart> own, of_previous;
    int64_t sent = 0;  // elements
  };

  void enter(const Mirrored& of);
  void lay_out(const std::vector<MirroredTensor>& tensors);
  StepCopy make_copy(const std::vector<MirroredTensor>& tensors, const RunState& state);
  void start_passing();
  void pass_on();
  void end_passing();
  template <class Visit>
  static void for_each_stored(const StepCopy& copy, const Visit& visit);

  std::vector<StepCopy> copies_;                     // newest first
  std::map<std::string, RegionsOfRanks> agreed_on_;  // the regions of the agreed step's tensors
  // The members below are for the current ranks.
  std::optional<HostMessages> messages_;
  int64_t renewals_ = 0;
  CopyLayout layout_;
  Passing passing_;
};

}  // namespace owt
