// The kernels of sampled classes against the functions of the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "layers/loss/class_sample.h"
#include "layers/sampled.h"
#include "src/core/dispatch.h"
#include "tests/support/harness.h"

namespace owt::sampled_kernels_test {
namespace {

using testing::ElementsAre;

using SampledKernels = DeviceTest;
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SampledKernels);
INSTANTIATE_TEST_SUITE_P(Gpus, SampledKernels, testing::ValuesIn(gpu_devices()), device_name);

// Draws of the classes of a part, one after the other, with `most` columns.
class Draws {
 public:
  Draws(Device device, double rate, const Slice& part, int64_t most)
      : pass_(device, 1),
        rate_(rate),
        part_(part),
        counter_({1}, DType::kF64, device),
        rows_({most}, DType::kI32, device) {
    counter_.zero();
    dispatch(device, [&](auto tag) { scratch_ = draw_scratch(tag, part); });
  }

  std::vector<int32_t> draw(int64_t step, const std::vector<int32_t>& labels) {
    pass_.pass().step = step;
    pass_.renew();
    const Tensor on_device = upload_labels(labels, rows_.device());
    dispatch(rows_.device(),
             [&](auto tag) { draw_classes(tag, pass_.pass(), rate_, part_, on_device, rows_, counter_, scratch_); });
    pass_.stream().synchronize();
    return download_labels(rows_);
  }
  double counted() const { return *counter_.to(Device::kCpu).data<double>(); }

 private:
  DevicePass pass_;
  double rate_;
  Slice part_;
  Tensor counter_, rows_, scratch_;
};

struct DrawCase {
  Slice part;
  double rate;
};

// Draws on the CPU and on the device, with labels and without, and compares the samples.
void compare_draws(const DrawCase& of, Device device) {
  const auto& [part, rate] = of;
  SCOPED_TRACE(concat("classes ", part.begin, " to ", part.end));
  const auto begin = static_cast<int32_t>(part.begin), end = static_cast<int32_t>(part.end);
  const int64_t most = part.size() + 3;
  Draws cpu(Device::kCpu, rate, part, most), gpu(device, rate, part, most);
  const std::vector<int32_t> some = {begin, end - 1, (begin + end) / 2, end - 1, begin - 1, end, -1, 2147480000};
  for (const std::vector<int32_t>& labels : {some, std::vector<int32_t>{}})
    for (const int64_t step : {0, 5}) {
      const std::vector<int32_t> wanted = cpu.draw(step, labels);
      ASSERT_EQ(gpu.draw(step, labels), wanted) << labels.size() << " labels, step " << step;
    }
  EXPECT_EQ(gpu.counted(), cpu.counted());
}

// Parts that begin and end within a random block, within a word and at one; parts without classes; and parts of several
// blocks of threads. A draw leaves nothing to the next one.
TEST_P(SampledKernels, DrawTheClassesOfTheCpu) {
  for (const DrawCase& each : {DrawCase{{0, 100}, 0.5},
                               {{0, 32}, 0.1},
                               {{64, 96}, 0.9},
                               {{31, 33}, 0.5},
                               {{5, 5}, 0.5},
                               {{40, 40}, 0.5},
                               {{3, 4}, 1e-6},
                               {{1001, 19003}, 0.1},
                               {{8192, 24576}, 0.25}})
    compare_draws(each, device());
}

TEST_P(SampledKernels, DrawAPartOfMoreBlocksThanABlockHasThreads) { compare_draws({{7, 2200003}, 1e-3}, device()); }

TEST_P(SampledKernels, LeaveTheLastClassesOutIfTheyDoNotFitAndSaySo) {
  constexpr Slice kPart{10, 300};
  const std::vector<int32_t> all = Draws(Device::kCpu, 0.5, kPart, kPart.size()).draw(2, {});
  const auto count = std::find(all.begin(), all.end(), kNoRow) - all.begin();
  Draws enough(device(), 0.5, kPart, count);
  EXPECT_THAT(enough.draw(2, {}), testing::ElementsAreArray(all.begin(), all.begin() + count));
  EXPECT_EQ(enough.counted(), static_cast<double>(count));
  Draws too_few(device(), 0.5, kPart, count - 1);
  EXPECT_THAT(too_few.draw(2, {}), testing::ElementsAreArray(all.begin(), all.begin() + count - 1));
  EXPECT_TRUE(std::isnan(too_few.counted()));
}

// Three ranks; the second has no classes, and this one is the third.
TEST_P(SampledKernels, FindTheColumnOfALabelAndNoneForALabelThatIsNoClass) {
  const Tensor classes = upload_labels({0, 10, 10, 25}, device()), columns = upload_labels({0, 4, 4, 10}, device());
  const Tensor rows = upload_labels({0, 3, 14, kNoRow, kNoRow, kNoRow}, device());
  const Tensor labels = upload_labels({10, 24, 13, 0, 9, 25, -1, 2147483647, -2147483647, 12}, device());
  Tensor to(labels.shape(), DType::kI32, device());
  const Stream stream(device());
  dispatch(device(), [&](auto tag) { find_columns(tag, classes, columns, 2, rows, labels, to, stream); });
  stream.synchronize();
  EXPECT_THAT(download_labels(to), ElementsAre(4, 6, 5, 0, 0, -1, -1, -1, -1, -1));

  const Tensor none = upload_labels({}, device());
  dispatch(device(), [&](auto tag) { find_columns(tag, classes, columns, 2, rows, none, to, stream); });
  stream.synchronize();
}

TEST_P(SampledKernels, FindTheColumnsOfTheCpuInADrawnSample) {
  constexpr Slice kPart{37, 500};
  const std::vector<int32_t> labels = {37, 499, 40, 41, 42, 300, 301, 0, 36, 500, 799, 37};
  Draws draws(Device::kCpu, 0.3, kPart, kPart.size());
  const std::vector<int32_t> rows = draws.draw(1, labels);
  const auto columns_on = [&](Device on) {
    Tensor to = upload_labels(std::vector<int32_t>(labels.size()), on);
    const Stream stream(on);
    dispatch(on, [&](auto tag) {
      find_columns(tag, upload_labels({0, 37, 500, 800}, on), upload_labels({0, 37, 500, 700}, on), 1,
                   upload_labels(rows, on), upload_labels(labels, on), to, stream);
      stream.synchronize();
    });
    return download_labels(to);
  };
  EXPECT_EQ(columns_on(device()), columns_on(Device::kCpu));
}

TEST(SampledColumns, AreAMultipleOfEightUnlessTheyAreAllClasses) {
  for (const int64_t classes : {1000, 1001, 1007, 54321}) {
    const int64_t most = most_sampled(classes, 0.1, 5);
    EXPECT_EQ(most % 8, 0) << classes;
    EXPECT_LT(most, classes);
  }
  EXPECT_EQ(most_sampled(101, 0.9, 5), 101);
}

// Numbers that bf16 holds.
std::vector<float> some_numbers(int64_t count) {
  std::vector<float> all(static_cast<size_t>(count));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i * 7 % 251) - 125;
  return all;
}

SampledRows rows_on(Device device, const std::vector<int32_t>& rows) { return {upload_labels(rows, device), 1}; }

// 0, 5, 10, ... and two columns without a row.
std::vector<int32_t> every_fifth(int64_t count) {
  std::vector<int32_t> rows(static_cast<size_t>(count + 2), kNoRow);
  for (int64_t i = 0; i < count; ++i) rows[static_cast<size_t>(i)] = static_cast<int32_t>(5 * i);
  return rows;
}

// Rows of one element, of some that are no pack, narrower than a warp, and of several blocks; addresses that are no
// multiple of a pack.
TEST_P(SampledKernels, GatherTheRowsOfTheCpu) {
  constexpr int64_t kRows = 101;
  const std::vector<int32_t> rows = every_fifth(21);
  const int64_t most = std::ssize(rows);
  for (const DType type : {DType::kF32, DType::kBF16})
    for (const int64_t width : {1, 3, 4, 8, 40, 260, 1032})
      for (const int64_t offset : {0, 1}) {
        SCOPED_TRACE(concat(name_of(type), ", rows of ", width, " from element ", offset));
        const auto gathered_on = [&](Device on) {
          const Tensor all = upload(some_numbers(kRows * width + offset), {kRows * width + offset}, on, type);
          Tensor memory({most * width + offset}, type, on);
          fill(memory, NAN);
          Tensor to = memory.part(offset, {most, width});
          const Stream stream(on);
          dispatch(on, [&](auto tag) {
            gather_rows(tag, all.part(offset, {kRows, width}), rows_on(on, rows), to, stream);
          });
          stream.synchronize();
          return download(to);
        };
        ASSERT_EQ(gathered_on(device()), gathered_on(Device::kCpu));
      }
}

TEST_P(SampledKernels, ClearTheColumnsOfTheCpu) {
  for (const DType type : {DType::kF32, DType::kBF16})
    for (const auto& [images, count] : {std::pair<int64_t, int64_t>{70, 300}, {1, 1}, {33, 254}, {2, 0}}) {
      const std::vector<int32_t> rows = every_fifth(count);
      const Shape shape{images, std::ssize(rows)};
      const auto cleared_on = [&](Device on) {
        Tensor y = upload(some_numbers(shape.elements()), shape, on, type);
        const Stream stream(on);
        dispatch(on, [&](auto tag) { clear_columns(tag, rows_on(on, rows), y, stream); });
        stream.synchronize();
        return download(y);
      };
      const std::vector<float> cleared = cleared_on(device());
      ASSERT_EQ(cleared, cleared_on(Device::kCpu)) << shape;
      EXPECT_LT(cleared.back(), -1e29f);
    }
}

}  // namespace
}  // namespace owt::sampled_kernels_test
