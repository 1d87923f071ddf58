#include "src/plan/layer_plan.h"

#include <algorithm>

namespace owt {
namespace {

// The inner layer whose op writes the block's output, so that it has none (Tape::sum_in_last_op); null: none.
const LayerPlan* summing_layer(const LayerPlan& block) {
  if (block.type != "residual") return nullptr;
  size_t last = 0;
  while (last + 1 < block.inner.size() && !block.inner[last + 1].begins_branch) ++last;
  return block.inner[last].type == "batch_norm" ? &block.inner[last] : nullptr;
}

// An in-place layer shares its output memory with the layer before it.
int64_t kept_by_tape(std::span<const LayerPlan> layers, const LayerPlan* without_output) {
  int64_t elements = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool last = i + 1 == layers.size() || layers[i + 1].begins_branch;
    const bool shared = !last && layers[i + 1].in_place;
    elements += kept_by_tape(layers[i].inner, summing_layer(layers[i]));
    if (shared || &layers[i] == without_output) continue;
    if (last || layers[i + 1].runs_backward()) elements += layers[i].kept_elements();
  }
  return elements;
}

}  // namespace

bool LayerPlan::learns() const {
  return std::any_of(roles.begin(), roles.end(), [](ParamRole role) { return owt::learns(role); });
}

int64_t LayerPlan::most_elements(const Shape& param) const {
  if (layout != Layout::kFeature) return param.elements();
  if (!by_inputs()) return param.with_rows(parts.front().size()).elements();
  return param.rank() == 1 ? param.elements() : param.rows() * inputs.front().size();  // one rank has the whole bias
}

int64_t LayerPlan::gradient_elements(const Shape& param) const {
  return sampled.empty() ? most_elements(param) : param.with_rows(sampled.front()).elements();
}

int64_t LayerPlan::weight_bytes_on_rank() const {
  int64_t bytes = 0;
  for (const Shape& param : params) bytes += 4 * most_elements(param);
  return bytes;
}

int64_t LayerPlan::velocity_bytes_on_rank() const {
  int64_t bytes = 0;
  for (size_t p = 0; p < params.size(); ++p)
    bytes += roles[p] == ParamRole::kTrained ? 4 * most_elements(params[p]) : 0;
  return bytes;
}

// Partial sums are as wide as the whole output.
bool LayerPlan::has_columns() const { return layout == Layout::kFeature && !by_inputs(); }

int64_t LayerPlan::scratch_bytes_on_rank() const {
  if (!sampled.empty()) return scratch_bytes / columns_out() * sampled.front();
  return has_columns() ? scratch_bytes / columns_out() * parts.front().size() : scratch_bytes;
}

int64_t LayerPlan::kept_elements() const {
  return has_columns() ? pixels_out() * parts.front().size() : out.elements();
}

Shape LayerPlan::out_of(size_t place) const {
  return layout == Layout::kFeature ? with_columns(out, parts[place].size()) : out;
}

double LayerPlan::share() const {
  const auto part = [](const Slice& of, int64_t whole) {
    return static_cast<double>(of.size()) / static_cast<double>(whole);
  };
  if (!sampled.empty()) return part({0, sampled.front()}, columns_out());
  if (by_inputs()) return part(inputs.front(), in.elements());
  return layout == Layout::kFeature ? part(parts.front(), columns_out()) : 1;
}

std::vector<int64_t> LayerPlan::step_sums(Phase phase, int place) const {
  std::vector<int64_t> sums = phase == Phase::kForward ? forward_sums : backward_sums;
  if (layout == Layout::kFeature)
    for (int64_t& each : sums) each = each / columns_out() * parts[static_cast<size_t>(place)].size();
  return sums;
}

int64_t LayerPlan::inner_elements() const {
  const LayerPlan* const summing = summing_layer(*this);
  int64_t elements = 0;
  for (const LayerPlan& each : inner)
    elements += each.inner_elements() + (each.in_place || &each == summing ? 0 : each.out.elements());
  return elements;
}

int64_t kept_elements(std::span<const LayerPlan> layers) { return kept_by_tape(layers, nullptr); }

const char* name_of(Layout layout) {
  const char* const names[] = {"batch", "replicated", "feature", "partial"};
  return names[static_cast<size_t>(layout)];
}

Shape with_columns(const Shape& row, int64_t columns) {
  return row.rank() == 3 ? Shape{row[0], row[1], columns} : Shape{columns};
}

}  // namespace owt
