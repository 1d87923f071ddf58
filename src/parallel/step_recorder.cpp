#include "src/parallel/step_recorder.h"

namespace owt {

bool StepRecorder::run(const Batch& batch, Mode mode, const Weights& weights, size_t slot, const Stream& stream,
                       const std::function<void()>& queue) {
  const bool timed = profiler_ && profiler_->in_step();
  const int64_t channels = batch.images.shape()[batch.images.shape().rank() - 1];
  const auto [found, first] = recorded_.try_emplace(
      {batch.step_rows, batch.images.raw(), batch.labels.raw(), channels, mode, weights, timed}, slots_);
  if (first) {
    queue();
    return false;
  }
  Recorded& recorded = found->second[slot];
  const bool before = recorded.graph.recorded();
  if (!before) {
    if (timed) profiler_->begin_recording();
    recorded.graph = Graph::record(stream, queue);
    if (timed) recorded.scopes = profiler_->end_recording();
  }
  recorded.graph.launch(stream);
  if (timed) profiler_->replayed(recorded.scopes);
  return before;
}

}  // namespace owt
