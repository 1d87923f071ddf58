#include "src/parallel/step_result.h"

namespace owt {

StepResult share_result(const StepResult& mine, Communicator& comm, const Stream& stream, Profiler* profiler) {
  const Profiler::Scope scope(profiler, "step result", Phase::kTransfer);
  Tensor values({kStepResultBytes / 4});
  values.zero();
  float* v = values.data();
  v[0] = static_cast<float>(mine.sums.loss);
  v[1] = static_cast<float>(mine.sums.top1);
  v[2] = static_cast<float>(mine.sums.top5);
  v[3] = static_cast<float>(mine.sums.rows);
  v[4] = mine.stop ? 1 : 0;
  comm.all_reduce(values, stream.record()).wait();
  StepResult all;
  all.sums.loss = v[0];
  all.sums.top1 = static_cast<int64_t>(v[1]);
  all.sums.top5 = static_cast<int64_t>(v[2]);
  all.sums.rows = static_cast<int64_t>(v[3]);
  all.stop = v[4] > 0;
  return all;
}

}  // namespace owt
