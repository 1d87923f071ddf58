#include "layers/loss/class_sample.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "layers/loss/softmax_rows.h"
#include "src/core/dispatch.h"
#include "src/core/philox.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kChunk = 1 << 12;      // classes
constexpr int64_t kColumnsTogether = 8;  // 16 bytes in bf16, as NVIDIA recommends for rows of factors

// i32: where the parts begin, and the end.
Tensor begins_of(const std::vector<Slice>& parts, Device device) {
  Tensor here({std::ssize(parts) + 1}, DType::kI32);
  auto* const begins = here.data<int32_t>();
  begins[0] = 0;
  for (size_t r = 0; r < parts.size(); ++r) begins[r + 1] = static_cast<int32_t>(parts[r].end);
  return here.to(device);
}

// Labels of the part, relative to its first class, sorted, each once.
std::vector<int32_t> labels_in(const Slice& part, const Tensor& labels) {
  std::vector<int32_t> found;
  const auto* const all = labels.data<int32_t>();
  for (int64_t i = 0; i < labels.elements(); ++i)
    if (all[i] >= part.begin && all[i] < part.end) found.push_back(static_cast<int32_t>(all[i] - part.begin));
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

// Appends the classes of `chunk` that a random number or a label chooses. All are relative to `first_class`.
void choose(const Philox& random, float rate, int64_t first_class, const Slice& chunk, std::span<const int32_t> labels,
            std::vector<int32_t>& chosen) {
  auto label = std::ranges::lower_bound(labels, static_cast<int32_t>(chunk.begin));
  std::array<float, 4> four{};
  for (int64_t c = chunk.begin; c < chunk.end; ++c) {
    const auto element = static_cast<uint64_t>(first_class + c);
    if (c == chunk.begin || element % 4 == 0) four = random.uniforms(element / 4);
    const bool labelled = label != labels.end() && *label == c;
    if (labelled) ++label;
    if (labelled || four[element % 4] < rate) chosen.push_back(static_cast<int32_t>(c));
  }
}

}  // namespace

int64_t most_sampled(int64_t classes, double rate, int64_t step_rows) {
  const double mean = static_cast<double>(classes) * rate, deviation = std::sqrt(mean * (1 - rate));
  const int64_t most = static_cast<int64_t>(std::ceil(mean + 10 * deviation + 20)) + step_rows;
  return std::min(classes, (most + kColumnsTogether - 1) / kColumnsTogether * kColumnsTogether);
}

std::vector<Slice> columns_of_sample(const std::vector<int64_t>& most) {
  std::vector<Slice> columns;
  for (int64_t begin = 0; const int64_t each : most) {
    columns.push_back({begin, begin + each});
    begin += each;
  }
  return columns;
}

ClassSample::ClassSample(std::vector<Slice> parts, const std::vector<int64_t>& most, int rank, double rate,
                         int64_t step_rows, Device device)
    : parts_(std::move(parts)),
      rank_(rank),
      rate_(rate),
      class_begins_(begins_of(parts_, device)),
      column_begins_(begins_of(columns_of_sample(most), device)),
      packed_labels_({step_rows}, DType::kI32, device) {
  OWT_CHECK_EQ(parts_.size(), most.size());
  rows_.rows = Tensor({most[static_cast<size_t>(rank)]}, DType::kI32, device);
  scratch_ = dispatch(device, [&](auto tag) { return draw_scratch(tag, parts_[static_cast<size_t>(rank)]); });
}

void ClassSample::draw(const Pass& pass, const Tensor& labels, Tensor& counter) {
  dispatch(labels.device(), [&](auto tag) {
    draw_classes(tag, pass, rate_, parts_[static_cast<size_t>(rank_)], labels, rows_.rows, counter, scratch_);
  });
  ++rows_.draw;
}

Tensor ClassSample::columns_of(const Tensor& labels, const Stream& stream) {
  Tensor columns = packed_labels_.part(0, labels.shape());
  dispatch(labels.device(), [&](auto tag) {
    find_columns(tag, class_begins_, column_begins_, rank_, rows_.rows, labels, columns, stream);
  });
  return columns;
}

void draw_classes(Cpu, const Pass& pass, double rate, const Slice& part, const Tensor& labels, Tensor& rows,
                  Tensor& counter, Tensor&) {
  const std::vector<int32_t> labelled = labels_in(part, labels);
  const Philox random(pass.seed, RandomStream::kSample, static_cast<uint64_t>(pass.step));
  const int64_t chunks = (part.size() + kChunk - 1) / kChunk;
  std::vector<std::vector<int32_t>> chosen(static_cast<size_t>(chunks));
  parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      choose(random, static_cast<float>(rate), part.begin, {i * kChunk, std::min((i + 1) * kChunk, part.size())},
             labelled, chosen[static_cast<size_t>(i)]);
  });
  int64_t count = 0;
  auto* const to = rows.data<int32_t>();
  for (const std::vector<int32_t>& some : chosen) {
    OWT_CHECK(count + std::ssize(some) <= rows.elements(), "a sample of more than ", rows.elements(), " classes");
    std::ranges::copy(some, to + count);
    count += std::ssize(some);
  }
  std::fill(to + count, to + rows.elements(), kNoRow);
  *counter.data<double>() += static_cast<double>(count);
}

void find_columns(Cpu, const Tensor& classes, const Tensor& columns, int rank, const Tensor& rows, const Tensor& labels,
                  Tensor& to, const Stream&) {
  const auto *const begins = classes.data<int32_t>(), *const ends = begins + classes.elements();
  const auto* const first_columns = columns.data<int32_t>();
  const auto* const own = rows.data<int32_t>();
  const int64_t count = SampledRows{rows}.count();
  check_labels(labels.data<int32_t>(), labels.elements(), ends[-1], {});
  for (int64_t i = 0; i < labels.elements(); ++i) {
    const int32_t label = labels.data<int32_t>()[i];
    const auto owner = std::upper_bound(begins, ends, label) - begins - 1;
    int64_t column = first_columns[owner];
    if (owner == rank) column += std::lower_bound(own, own + count, label - begins[owner]) - own;
    to.data<int32_t>()[i] = static_cast<int32_t>(column);
  }
}

}  // namespace owt
