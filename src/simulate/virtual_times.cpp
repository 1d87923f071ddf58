#include "src/simulate/virtual_times.h"

#include <algorithm>

#include "src/core/philox.h"

namespace owt {

double VirtualTimes::of_task(int worker, int64_t task, int64_t rows, int64_t from_layer) {
  return compute_seconds(rows, from_layer) * slowness(worker, task);
}

double VirtualTimes::of_planned_task(int worker, int64_t task) const {
  return cluster_.planned->compute_s * slowness(worker, task);
}

double VirtualTimes::of_planned_step(int64_t task) const {
  double slowest = 0;
  for (int w = 0; w < job_.plan.ranks(); ++w) slowest = std::max(slowest, slowness(w, task));
  return cluster_.planned->compute_s * slowest + cluster_.planned->exposed_s;
}

double VirtualTimes::of_messages(int worker, int64_t next_task, double bytes) const {
  return bytes * cluster_.message_work * slowness(worker, next_task);
}

double VirtualTimes::of_update() const {
  const int servers = cluster_.servers == kOnWorkers ? job_.plan.ranks() : cluster_.servers;
  double seconds = 0;
  for (size_t layer = 0; layer < job_.plan.layers.size(); ++layer)
    if (job_.plan.layers[layer].learns()) seconds += compute_.update(layer, 1.0 / servers);
  return seconds;
}

// Forward, then backward down to `from_layer`. The backward time of each layer includes gradients of its weights,
// although only the block's gradients are needed.
double VirtualTimes::compute_seconds(int64_t rows, int64_t from_layer) {
  if (rows == 0) return 0;
  const auto [known, is_new] = known_.try_emplace({rows, from_layer}, 0);
  if (!is_new) return known->second;
  const auto of = static_cast<double>(rows);
  double seconds = compute_.loss(of) + compute_.rest();
  for (size_t layer = 0; layer < job_.plan.layers.size(); ++layer) {
    seconds += compute_.forward(layer, of, 1);
    if (job_.plan.layers[layer].runs_backward() && static_cast<int64_t>(layer) >= from_layer)
      seconds += compute_.backward(layer, of, 1);
  }
  return known->second = seconds;
}

double VirtualTimes::slowness(int worker, int64_t task) const {
  double slowness = 1;
  for (size_t i = 0; i < cluster_.stragglers.size(); ++i) {
    const Straggler& each = cluster_.stragglers[i];
    const Philox random(job_.settings.run.seed, RandomStream::kVirtual, static_cast<uint64_t>(task), "straggler");
    const auto element = i * static_cast<size_t>(job_.plan.ranks()) + static_cast<size_t>(worker);
    const bool meant = each.worker == kAnyWorker || each.worker == worker;
    if (meant && static_cast<double>(random.uniform(element)) < each.share) slowness *= each.factor;
  }
  return slowness;
}

}  // namespace owt
