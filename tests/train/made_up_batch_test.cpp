#include "src/train/made_up_batch.h"

#include <gtest/gtest.h>

#include "src/core/philox.h"
#include "tests/support/models.h"

namespace owt::made_up_batch_test {
namespace {

const Model& model() {
  static const Model made = model_of("[3, 5, 5]", 4, R"({ name = "fc", type = "dense", out = 4 })");
  return made;
}

// 75 values per image, so that rows do not begin at blocks of random numbers.
TEST(SyntheticBatch, HoldsTheValuesOfItsRows) {
  PlanRequest request;
  request.step_rows = 9;
  const Philox random(1, RandomStream::kSynthetic);
  for (const Slice& rows : {Slice{0, 9}, Slice{3, 7}, Slice{5, 6}, Slice{4, 4}}) {
    const Batch batch = made_up_batch(model(), rows, request);
    ASSERT_EQ(batch.images.shape(), Shape({rows.size(), 5, 5, 3}));
    for (int64_t i = 0; i < batch.images.elements(); ++i)
      ASSERT_EQ(batch.images.data()[i], random.uniform(static_cast<uint64_t>(rows.begin * 75 + i)) - 0.5f) << i;
    for (int64_t i = 0; i < rows.size(); ++i) EXPECT_EQ(batch.labels.data<int32_t>()[i], (rows.begin + i) % 4);
  }
}

TEST(SyntheticBatch, ComesInALayout) {
  PlanRequest request;
  request.step_rows = 3;
  const ImageLayout layout{5, 5, 3, 2, 2, 1, 1, 3, 3, 16};
  const Batch plain = made_up_batch(model(), {0, 3}, request), packed = made_up_batch(model(), {0, 3}, request, layout);
  const Tensor wanted = laid_out(plain.images, layout);
  ASSERT_EQ(packed.images.shape(), wanted.shape());
  EXPECT_TRUE(std::equal(wanted.data(), wanted.data() + wanted.elements(), packed.images.data()));
}

}  // namespace
}  // namespace owt::made_up_batch_test
