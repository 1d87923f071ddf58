#include "src/train/made_up_batch.h"

#include <algorithm>
#include <array>

#include "src/core/bf16.h"
#include "src/core/philox.h"
#include "src/core/threads.h"

namespace owt {

namespace {

// Fills in numbers [first, first + images.elements()) of a sequence of values from -0.5 to 0.5, with the calling rank's
// team: a large batch has 10^8.
void draw(int64_t first, Tensor& images) {
  constexpr int64_t kBlock = 4;  // numbers drawn together
  const Philox random(1, RandomStream::kSynthetic);
  const int64_t end = first + images.elements(), first_block = first / kBlock;
  parallel_for((end + kBlock - 1) / kBlock - first_block, 1 << 12, [&](int64_t part, int64_t part_end) {
    for (int64_t block = first_block + part; block < first_block + part_end; ++block) {
      const std::array<float, kBlock> numbers = random.uniforms(static_cast<uint64_t>(block));
      for (int64_t i = std::max(block * kBlock, first); i < std::min((block + 1) * kBlock, end); ++i)
        images.data()[i - first] = numbers[static_cast<size_t>(i % kBlock)] - 0.5f;
    }
  });
}

}  // namespace

Batch made_up_batch(const Model& model, const Slice& rows, const PlanRequest& request,
                    const std::optional<ImageLayout>& layout) {
  Batch batch;
  batch.images = Tensor(model.input.batch_of(rows.size()));
  const int64_t numbers = request.loss.label_numbers();
  batch.labels = Tensor(shape_of_labels(request.loss.label_rows(), rows.size()), DType::kI32);
  batch.step_rows = request.step_rows;
  draw(rows.begin * model.input.elements(), batch.images);
  if (layout) batch.images = laid_out(batch.images, *layout);
  for (int64_t i = 0; i < rows.size(); ++i) {
    int32_t* label = batch.labels.data<int32_t>() + i * numbers;
    label[0] = static_cast<int32_t>((rows.begin + i) % model.classes);
    if (request.loss.mixed_labels) label[1] = label[0], label[2] = RowLabel::kShareUnits;
    std::fill(label + numbers - request.loss.targets.classes, label + numbers,
              bits_of_target(1 / static_cast<float>(model.classes)));
  }
  if (request.on.precision == Precision::kBf16) batch.images = to_bf16(batch.images);
  batch.images = batch.images.to(request.on.device);
  batch.labels = batch.labels.to(request.on.device);
  return batch;
}

}  // namespace owt
