// The GPU memory of batches, byte for byte.
#include "tests/simulated_gpu/device.h"

#include "data/batch_memory.h"

#include <gtest/gtest.h>

#include <utility>

#include "data/device_batches.h"
#include "src/core/cuda.h"
#include "tests/data/batches.h"

namespace owt::batch_memory_gpu_test {
namespace {

int64_t free_bytes() {
  size_t free = 0, total = 0;
  OWT_CUDA(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

struct Bytes {
  int64_t taken, said;
};

// The memory of a rank with this many rows.
Bytes bytes_of(const AugmentSettings& augment, Precision precision, int64_t rows, bool training, bool targets = false) {
  LoaderSettings settings;
  settings.dataset = numbered_images(1024);
  if (targets) settings.dataset = std::make_shared<TargetedImages>(1024);
  const Augmenter& augmenter = *(settings.augmenter = std::make_shared<Augmenter>(augment, settings.dataset->image()));
  settings.batch = 2 * rows;
  settings.training = training;
  settings = of_rank(std::move(settings), 2, 1);
  const int64_t size = size_of(activation_type(precision)), images = 2 * rows * augmenter.out_shape().elements() * size;
  const BatchMemory beside = memory_beside_images(augment, settings.dataset->image(), augmenter.out_shape(), size,
                                                  settings.dataset->targets());
  const Stream stream(Device::kCuda);
  const int64_t before = free_bytes();
  const auto source = make_streamed_batches({precision}, settings);
  for (int step = 0; step < 3; ++step) source->next(stream);
  stream.synchronize();
  return {before - free_bytes(), images + rows * beside.row_bytes + beside.bytes};
}

// With this many rows no size that grows with them is rounded up, and tables are small.
TEST(BatchMemory, IsWhatIsTakenByteForByte) {
  constexpr int64_t kRows = 256, kRoundedUp = 512, kTensors = 24;
  const AugmentSettings plain{.crop = 3, .pad = 1, .mirror = true};
  AugmentSettings edits = plain, mixes = plain, both = plain;
  edits.jitter.brightness = both.jitter.brightness = 0.4;
  mixes.mix.mixup = both.mix.mixup = 0.2;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16})
    for (const AugmentSettings& augment : {plain, edits, mixes, both})
      for (const bool targets : {false, true}) {
        SCOPED_TRACE(concat(precision, augment.edits() ? ", edited" : "", augment.mix.any() ? ", mixed" : "",
                            targets ? ", with targets" : ""));
        const Bytes few = bytes_of(augment, precision, kRows, true, targets),
                    many = bytes_of(augment, precision, 2 * kRows, true, targets);
        EXPECT_EQ(many.taken - few.taken, many.said - few.said);
        EXPECT_GE(few.taken, few.said);
        EXPECT_LT(few.taken, few.said + kRoundedUp * kTensors);
      }
}

TEST(BatchMemory, OfAnEvaluationHasNoEditedImages) {
  AugmentSettings plain{.crop = 3}, edits{.crop = 3};
  edits.jitter.brightness = 0.4;
  EXPECT_EQ(bytes_of(edits, Precision::kFp32, 256, false).taken, bytes_of(plain, Precision::kFp32, 256, false).taken);
}

}  // namespace
}  // namespace owt::batch_memory_gpu_test
