// Steps as CUDA graphs: each kind of step is recorded once for every result slot, and replayed afterwards.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "data/batch.h"
#include "layers/base/layer.h"
#include "src/core/graph.h"
#include "src/core/profiler.h"
#include "src/plan/transfer.h"

namespace owt {

class StepRecorder {
 public:
  struct Weights {
    StepKind kind;
    bool averages;  // updates the weights' averages
    bool beside;    // StepState::updates_beside
    auto operator<=>(const Weights&) const = default;
  };

  // profiler must outlive this; it may be null.
  StepRecorder(size_t slots, Profiler* profiler) : slots_(slots), profiler_(profiler) {}

  // Queues the step of this batch, with its results in this slot. The first step of a kind is queued without recording,
  // since it allocates memory and chooses algorithms. The next one of each slot is recorded. Returns whether it was
  // recorded before.
  bool run(const Batch& batch, Mode mode, const Weights& weights, size_t slot, const Stream& stream,
           const std::function<void()>& queue);

 private:
  struct Recorded {
    Graph graph;
    std::shared_ptr<const Profiler::Recording> scopes;
  };
  // The properties that a recorded step depends on: rows, addresses of images and labels, channels of the images (which
  // identify their layout), mode, `weights`, and whether it is profiled.
  using Kind = std::tuple<int64_t, const void*, const void*, int64_t, Mode, Weights, bool>;

  size_t slots_;
  Profiler* profiler_;
  std::map<Kind, std::vector<Recorded>> recorded_;  // one per slot
};

}  // namespace owt
