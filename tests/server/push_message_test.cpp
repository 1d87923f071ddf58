// Filtered gradients as bytes: unpacking gives the filters' output, in the number of bytes that they report.
#include "src/server/push_message.h"

#include <gtest/gtest.h>

#include <cmath>

#include "src/system/check.h"
#include "tests/support/harness.h"

namespace owt::push_message_test {
namespace {

constexpr int64_t kElements = 48;
const std::vector<Slice> kTensors{{0, 13}, {16, 17}, {24, 45}};  // in a bucket of 48
const std::vector<Slice> kRanges{{0, 16}, {16, 32}, {32, 48}, {0, 48}};

struct Bucket48 {
  Tensor values{Shape{kElements}};
  std::vector<Filtered> filtered{};
};

// Normal numbers of very different sizes, after the filters; zeros between the tensors.
Bucket48 filtered_bucket(const FilterSettings& settings) {
  const Philox random(1, RandomStream::kTest, 0, "messages");
  PushFilter filter(settings, 1, 0);
  Bucket48 bucket;
  bucket.values.zero();
  for (size_t t = 0; t < kTensors.size(); ++t) {
    float* const first = bucket.values.data() + kTensors[t].begin;
    const auto count = static_cast<size_t>(kTensors[t].size());
    for (size_t i = 0; i < count; ++i)
      first[i] = random.normal(100 * t + i) * std::pow(10.0f, static_cast<float>(i % 9) - 6);
    bucket.filtered.push_back(filter.apply(t, {first, count}, 3));
  }
  return bucket;
}

std::vector<FilterSettings> all_filters() {
  std::vector<FilterSettings> all;
  for (const char* value : {"", "bf16", "fp16", "fix8", "fix16", "coin8", "coin16"})
    for (const char* choice : {"", "top:0.01", "top:0.5", "skip:0.7", "significant:0.5", "significant:1e9"}) {
      std::vector<std::string> words;
      for (const char* word : {choice, value})
        if (*word) words.emplace_back(word);
      all.push_back(filters_from(words));
    }
  return all;
}

TEST(PushMessageTest, WhatIsUnpackedIsWhatFiltersLeave) {
  for (const FilterSettings& settings : all_filters())
    for (const Slice range : kRanges) {
      SCOPED_TRACE(concat(settings.text(), ", from ", range.begin, " to ", range.end));
      const Bucket48 bucket = filtered_bucket(settings);
      const PushMessage message(settings, kTensors);
      const int64_t count = message.count(bucket.filtered, range);
      const Tensor packed = message.packed(bucket.values, bucket.filtered, range);
      EXPECT_EQ(packed.bytes(), message.bytes(range, count));
      EXPECT_EQ(packed.bytes() + (settings.chooses() ? 8 : 0),
                settings.message_bytes(range.size(), count, std::ssize(kTensors)));
      EXPECT_LE(packed.bytes(), message.most_bytes(range));
      Tensor values({range.size()});
      message.unpack(packed, count, range, values);
      EXPECT_EQ(download(values), download(bucket.values.part(range.begin, {range.size()})));
    }
}

// Compares with the largest message over all possible counts.
TEST(PushMessageTest, KnowsTheLargestMessage) {
  for (const FilterSettings& settings : all_filters()) {
    const PushMessage message(settings, kTensors);
    int64_t most = 0;
    for (int64_t count = 0; count <= 4096; ++count) most = std::max(most, message.bytes({0, 4096}, count));
    EXPECT_GE(message.most_bytes({0, 4096}), most) << settings.text();
  }
}

TEST(PushMessageTest, HalfPrecisionTravelsToTheLastBit) {
  const FilterSettings settings = filters_from({"fp16"});
  const std::vector<float> kept{0.0f,     -0.0f, 0x1p-24f, -3 * 0x1p-24f, 0x1p-14f - 0x1p-24f,
                                0x1p-14f, 1,     -1.5f,    65504,         -65504};
  const auto elements = std::ssize(kept);
  const PushMessage message(settings, {{0, elements}});
  Tensor values({elements}), arrived({elements});
  std::copy(kept.begin(), kept.end(), values.data());
  const Filtered all{.sent = Sent(kept.size(), true)};
  message.unpack(message.packed(values, {&all, 1}, {0, elements}), elements, {0, elements}, arrived);
  EXPECT_EQ(download(arrived), kept);
  EXPECT_TRUE(std::signbit(arrived.data()[1]));
}

// Receivers must see that these values are not finite, whatever a filter drops or rounds.
TEST(PushMessageTest, WhatIsNotFiniteArrivesAsSuch) {
  const std::vector<float> weights(4);
  for (const std::vector<std::string>& filters : std::vector<std::vector<std::string>>{{"bf16"},
                                                                                       {"fp16"},
                                                                                       {"fix8"},
                                                                                       {"coin16"},
                                                                                       {"significant:1"},
                                                                                       {"significant:1", "fp16"},
                                                                                       {"kkt:1", "fp16"},
                                                                                       {"top:0.25", "fix16"},
                                                                                       {"skip:0.000001"}})
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      const FilterSettings settings = filters_from(filters);
      PushFilter filter(settings, 1, 0);
      Tensor values({4}), arrived({4});
      std::copy_n(std::vector{1.0f, bad, -1.0f, 0.0f}.begin(), 4, values.data());
      const Filtered filtered = filter.apply(0, {values.data(), 4}, 0, {weights, 0.5});
      const PushMessage message(settings, {{0, 4}});
      const Tensor packed = message.packed(values, {&filtered, 1}, {0, 4});
      message.unpack(packed, message.count({&filtered, 1}, {0, 4}), {0, 4}, arrived);
      EXPECT_FALSE(std::isfinite(arrived.data()[1])) << settings.text() << ' ' << bad;
      // the message to the worker's own server
      EXPECT_FALSE(std::isfinite(values.data()[1])) << settings.text() << ' ' << bad;
    }
}

TEST(PushMessageTest, AMessageOfAnotherLengthIsNoneOfThem) {
  const PushMessage message(filters_from({"top:0.5"}), kTensors);
  Tensor values({16});
  EXPECT_THROW(message.unpack(Tensor({3}, DType::kU8), 1, {0, 16}, values), Error);
}

}  // namespace
}  // namespace owt::push_message_test
