#include "src/parallel/memory_need.h"

#include <algorithm>
#include <cmath>

namespace owt {

int64_t kept_columns(const LayerPlan& layer) {
  if (layer.by_inputs()) return layer.out.elements();  // summands
  return layer.layout == Layout::kFeature ? layer.parts.front().size() : layer.out.elements();
}

namespace {

// Elements per row that backward of a composite layer needs: the gradient of its output, that of the shortcut's input,
// and the two gradients of a branch.
int64_t scratch_elements(const LayerPlan& layer) {
  if (layer.inner.empty()) return 0;
  int64_t largest = 0, inner = 0;
  for (const LayerPlan& each : layer.inner) {
    largest = std::max({largest, each.out.elements(), each.in.elements()});
    inner = std::max(inner, scratch_elements(each));
  }
  return layer.out.elements() + layer.in.elements() + 2 * largest + inner;
}

// What backward through the run of layers [begin, end) needs per row: two gradients as large as the largest, and what
// one composite layer at a time needs.
int64_t gradient_elements(const Plan& plan, int64_t begin, int64_t end) {
  int64_t largest = 0, scratch = 0;
  for (int64_t i = begin; i < end; ++i) {
    const LayerPlan& at = plan.layer(i);
    largest = std::max({largest, kept_columns(at), i > begin ? at.in.elements() : 0});
    scratch = std::max(scratch, scratch_elements(at));
  }
  return 2 * largest + scratch;
}

// Elements per row that the run of layers [begin, end) keeps.
int64_t kept_elements(const Plan& plan, int64_t begin, int64_t end) {
  int64_t outputs = 0;
  for (int64_t i = begin; i < end; ++i) {
    const LayerPlan& at = plan.layer(i);
    if (!at.in_place) outputs += kept_columns(at);
    outputs += at.inner_elements();
  }
  return outputs + gradient_elements(plan, begin, end);
}

// Of a row of images that waits for its step. On a GPU there are two batches as the network reads them
// (data/two_batches.h), and three of bytes that are sent ahead (data/streamed_batches.cu).
double image_bytes(const Plan& plan) {
  const auto elements = static_cast<double>(plan.layers.front().in.elements());
  const auto size = static_cast<double>(size_of(activation_type(plan.request.on.precision)));
  return plan.request.on.device == Device::kCpu ? size * elements : (2 * size + 3) * elements;
}

// Of the moves between split layers: the whole batch, its gradient, and what travels.
int64_t moved_elements(const Plan& plan) {
  int64_t elements = 0;
  for (const LayerPlan& at : plan.layers) {
    if (at.gather_before) elements += 3 * at.in.elements();
    if (at.by_inputs()) elements += 2 * at.out.elements() + 2 * at.parts.front().size();
  }
  return elements;
}

// Of the seam, per row of a dense batch: as many batches as are there at once and their gradients, or the columns that
// are exchanged.
double seam_elements(const Plan& plan) {
  const LayerPlan& first = plan.layer(plan.boundary);
  if (first.transfers.input == kNoTransfer) return 0;
  const size_t rounds = plan.rows(plan.request.step_rows).round_sizes(0).size();
  const auto places = static_cast<double>(std::min<size_t>(rounds, kRoundsAtOnce));
  return first.by_inputs() ? 4.0 * static_cast<double>(first.inputs.front().size())
                           : 2.0 * places * static_cast<double>(first.in.elements());
}

int64_t velocity_bytes(const Plan& plan) {
  if (!plan.shares_update()) return plan.weight_bytes_per_rank();
  int64_t bytes = 0;
  for (const Bucket& bucket : plan.buckets) bytes += bucket.elements / plan.ranks() * 4;
  return bytes;
}

// On the host a piece of the largest parameter is read, received, brought into the order of memory and cut; on a GPU it
// is received.
int64_t piece_bytes(const Plan& plan) {
  int64_t largest = 0;
  for (const LayerPlan& layer : plan.layers)
    for (const Shape& param : layer.params) largest = std::max(largest, largest_piece(param));
  return largest * 4 * (plan.request.on.device == Device::kCpu ? 4 : 1);
}

}  // namespace

int64_t MemoryNeed::bytes(int64_t step_rows) const {
  return weight_bytes + piece_bytes + static_cast<int64_t>(std::ceil(step_row_bytes * static_cast<double>(step_rows)));
}

int64_t MemoryNeed::rows_in(int64_t memory_bytes) const {
  const auto left = static_cast<double>(memory_bytes - weight_bytes - piece_bytes);
  return left <= 0 || step_row_bytes <= 0 ? 0 : static_cast<int64_t>(left / step_row_bytes);
}

MemoryNeed memory_need(const Plan& plan) {
  const PlanRequest& request = plan.request;
  const StepRows rows = plan.rows(request.step_rows);
  const auto size = static_cast<double>(size_of(activation_type(request.on.precision)));
  const auto whole = static_cast<double>(std::max<int64_t>(request.step_rows, 1));
  const auto layers = static_cast<int64_t>(plan.layers.size());

  MemoryNeed need;
  const int64_t values = plan.weight_bytes_per_rank();
  const int64_t copies = request.on.precision == Precision::kBf16 ? values / 2 : 0;
  need.weight_bytes = values + copies + plan.gradient_bytes_per_rank() + velocity_bytes(plan);
  need.piece_bytes = piece_bytes(plan);
  const double front = size * static_cast<double>(kept_elements(plan, 0, plan.boundary)) + image_bytes(plan);
  need.step_row_bytes = front * static_cast<double>(rows.most()) / whole;
  if (!plan.split()) return need;
  const int64_t dense_rows = plan.layer_rows(plan.boundary, request.step_rows).at_once;
  // The boundary also holds the gradient of the rank's own rows.
  const auto seam = static_cast<double>(plan.layer(plan.boundary).in.elements());
  const double back =
      static_cast<double>(kept_elements(plan, plan.boundary, layers) + moved_elements(plan)) + seam_elements(plan);
  need.step_row_bytes += size * back * static_cast<double>(dense_rows) / whole;
  need.step_row_bytes += size * seam * static_cast<double>(rows.most()) / whole;
  return need;
}

}  // namespace owt
