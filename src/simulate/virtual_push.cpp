// What a virtual worker sends: its gradient after filters, or a block of it.
#include <algorithm>
#include <cmath>

#include "data/order.h"
#include "src/core/philox.h"
#include "src/simulate/virtual_run.h"

namespace owt {

// Filters the gradient, and returns the bytes that travel.
int64_t VirtualRun::filter(VirtualWorker& its) {
  if (!cluster_.filters.any() && cluster_.blocks == BlockOrder::kNone) return bytes_;
  if (!its.kept) its.kept = its.gradient.get();
  int64_t bytes = 0;
  for (size_t p = 0; p < params_.size(); ++p) {
    if (!is_of_block(p, its.push.task)) {
      if (pool_) its.kept->of_params[p] = {};
    } else if (its.kept->rows > 0 && params_[p].role == ParamRole::kTrained) {
      bytes += cluster_.filters.message_bytes(params_[p].elements, sent_of(its, p));
    } else if (its.kept->rows > 0) {
      bytes += params_[p].bytes();
    }
  }
  return bytes;
}

// Filters a parameter's gradient, and returns the number of entries to send.
int64_t VirtualRun::sent_of(VirtualWorker& its, size_t param) {
  if (!pool_) {
    const auto all = static_cast<double>(params_[param].elements);
    return static_cast<int64_t>(std::ceil(cluster_.filters.usual_share() * all));
  }
  Tensor& tensor = its.kept->of_params[param];
  const std::span values(tensor.data(), static_cast<size_t>(tensor.elements()));
  return its.filter->apply(param, values, its.push.task, penalised(its, param)).count();
}

// The gradient belongs to the worker's share of the rows, so the penalty of the step is scaled by this share.
Penalised VirtualRun::penalised(const VirtualWorker& its, size_t param) const {
  const Tensor& weights = (*its.weights)[param];
  return {{weights.data(), static_cast<size_t>(weights.elements())}, learning_.l1(param) * its.kept->share};
}

int64_t VirtualRun::block_of(int64_t task) const {
  if (cluster_.blocks == BlockOrder::kNone) return 0;
  const int64_t blocks = std::ssize(blocks_), pass = task / blocks;
  if (cluster_.blocks == BlockOrder::kGiven) return blocks_[static_cast<size_t>(task % blocks)];
  const Philox random(job_.settings.run.seed, RandomStream::kVirtual, static_cast<uint64_t>(pass), "blocks");
  return blocks_[static_cast<size_t>(permutation(random, blocks)[static_cast<size_t>(task % blocks)])];
}

bool VirtualRun::is_of_block(size_t param, int64_t task) const {
  return cluster_.blocks == BlockOrder::kNone || params_[param].layer == block_of(task);
}

int64_t VirtualRun::news(const VirtualWorker& its) const {
  int64_t bytes = 0;
  for (size_t p = 0; p < params_.size(); ++p)
    if (changed_at_[p] > its.has) bytes += params_[p].bytes();
  return bytes;
}

}  // namespace owt
