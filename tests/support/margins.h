// Records how close comparisons of numbers come to their bounds. This header is compiled into all tests of the folders.
// It makes EXPECT_NEAR, EXPECT_LT and the like, EXPECT_DOUBLE_EQ (4 units in the last place), FloatNear and DoubleNear
// record their comparisons. With OWT_TEST_MARGINS=1 a test program prints at its end, for each place and test:
//   margin KIND SHARE VALUE BOUND FILE:LINE TEST      the comparison with the largest share VALUE / BOUND
// KIND is "error" or, for EXPECT_LT and the like, "order". Comparisons of integers are not recorded. Code with its own
// comparisons calls record(). tools/margins.py reads the output of many runs.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace owt::margins {

struct Place {
  const char* file;
  int line;
};

enum class Kind { kError, kOrder };

class Recorder {
 public:
  // NaN is not recorded. Virtual, so that programs of tests link without the other objects of tests/support.
  virtual void record(const Place& place, double value, double bound, Kind kind = Kind::kError);
  std::vector<std::string> lines() const;  // the largest share first

 private:
  struct Margin {
    double share = -1, value = 0, bound = 0;
    Kind kind{};
  };
  mutable std::mutex mutex_;
  std::map<std::string, Margin> margins_;  // by place and test
};

// The recorder; null without OWT_TEST_MARGINS.
inline Recorder* recorder = nullptr;

inline void record(const Place& place, double value, double bound, Kind kind = Kind::kError) {
  if (recorder) recorder->record(place, value, bound, kind);
}

// Records the comparison less < more. Numbers with different signs are not close to their bound.
template <class A, class B>
void record_order(const Place& place, const A& less, const B& more) {
  if constexpr (std::is_arithmetic_v<A> && std::is_arithmetic_v<B> &&
                (std::is_floating_point_v<A> || std::is_floating_point_v<B>)) {
    const auto a = static_cast<double>(less), b = static_cast<double>(more);
    if (a < 0 && b < 0)
      record(place, -b, -a, Kind::kOrder);
    else
      record(place, std::max(a, 0.0), b, Kind::kOrder);
  }
}

struct Near : Place {
  testing::AssertionResult operator()(const char* a_is, const char* b_is, const char* bound_is, double a, double b,
                                      double bound) const {
    record(*this, std::abs(a - b), bound);
    return testing::internal::DoubleNearPredFormat(a_is, b_is, bound_is, a, b, bound);
  }
};

template <class Float>
struct Alike : Place {
  testing::AssertionResult operator()(const char* a_is, const char* b_is, Float a, Float b) const {
    const Float larger = std::max(std::abs(a), std::abs(b));
    record(*this, std::abs(a - b) / (std::nextafter(larger, std::numeric_limits<Float>::infinity()) - larger), 4);
    return testing::internal::CmpHelperFloatingPointEQ<Float>(a_is, b_is, a, b);
  }
};

#define OWT_RECORDED_ORDER(Name, helper, less, more)                                                        \
  struct Name : Place {                                                                                     \
    template <class A, class B>                                                                             \
    testing::AssertionResult operator()(const char* a_is, const char* b_is, const A& a, const B& b) const { \
      record_order(*this, less, more);                                                                      \
      return testing::internal::helper(a_is, b_is, a, b);                                                   \
    }                                                                                                       \
  };
OWT_RECORDED_ORDER(Less, CmpHelperLT, a, b)
OWT_RECORDED_ORDER(LessOrEqual, CmpHelperLE, a, b)
OWT_RECORDED_ORDER(Greater, CmpHelperGT, b, a)
OWT_RECORDED_ORDER(GreaterOrEqual, CmpHelperGE, b, a)
#undef OWT_RECORDED_ORDER

MATCHER_P3(NearNumber, place, wanted, bound, "is within " + testing::PrintToString(bound)) {
  const double off = std::abs(static_cast<double>(arg) - static_cast<double>(wanted));
  record(place, off, static_cast<double>(bound));
  return off <= static_cast<double>(bound) || arg == wanted;  // inf equals inf
}
MATCHER_P2(NearPair, place, bound, "are within " + testing::PrintToString(bound)) {
  return testing::ExplainMatchResult(NearNumber(place, std::get<1>(arg), bound), std::get<0>(arg), result_listener);
}

}  // namespace owt::margins

namespace testing {  // the namespace in which tests find FloatNear
inline auto NearAt(owt::margins::Place place, double bound) { return owt::margins::NearPair(place, bound); }
inline auto NearAt(owt::margins::Place place, double wanted, double bound) {
  return owt::margins::NearNumber(place, wanted, bound);
}
}  // namespace testing
namespace owt {
using testing::NearAt;
}  // namespace owt
namespace simulated_gpu {
using testing::NearAt;
}  // namespace simulated_gpu

#define OWT_AT(Name) (::owt::margins::Name{{__FILE__, __LINE__}})
#define FloatNear(...) NearAt({__FILE__, __LINE__}, __VA_ARGS__)
#define DoubleNear(...) NearAt({__FILE__, __LINE__}, __VA_ARGS__)
#undef EXPECT_NEAR
#undef ASSERT_NEAR
#undef EXPECT_FLOAT_EQ
#undef ASSERT_FLOAT_EQ
#undef EXPECT_DOUBLE_EQ
#undef ASSERT_DOUBLE_EQ
#undef EXPECT_LT
#undef EXPECT_LE
#undef EXPECT_GT
#undef EXPECT_GE
#undef ASSERT_LT
#undef ASSERT_LE
#undef ASSERT_GT
#undef ASSERT_GE
#define EXPECT_NEAR(a, b, bound) EXPECT_PRED_FORMAT3(OWT_AT(Near), a, b, bound)
#define ASSERT_NEAR(a, b, bound) ASSERT_PRED_FORMAT3(OWT_AT(Near), a, b, bound)
#define EXPECT_FLOAT_EQ(a, b) EXPECT_PRED_FORMAT2(OWT_AT(Alike<float>), a, b)
#define ASSERT_FLOAT_EQ(a, b) ASSERT_PRED_FORMAT2(OWT_AT(Alike<float>), a, b)
#define EXPECT_DOUBLE_EQ(a, b) EXPECT_PRED_FORMAT2(OWT_AT(Alike<double>), a, b)
#define ASSERT_DOUBLE_EQ(a, b) ASSERT_PRED_FORMAT2(OWT_AT(Alike<double>), a, b)
#define EXPECT_LT(a, b) EXPECT_PRED_FORMAT2(OWT_AT(Less), a, b)
#define EXPECT_LE(a, b) EXPECT_PRED_FORMAT2(OWT_AT(LessOrEqual), a, b)
#define EXPECT_GT(a, b) EXPECT_PRED_FORMAT2(OWT_AT(Greater), a, b)
#define EXPECT_GE(a, b) EXPECT_PRED_FORMAT2(OWT_AT(GreaterOrEqual), a, b)
#define ASSERT_LT(a, b) ASSERT_PRED_FORMAT2(OWT_AT(Less), a, b)
#define ASSERT_LE(a, b) ASSERT_PRED_FORMAT2(OWT_AT(LessOrEqual), a, b)
#define ASSERT_GT(a, b) ASSERT_PRED_FORMAT2(OWT_AT(Greater), a, b)
#define ASSERT_GE(a, b) ASSERT_PRED_FORMAT2(OWT_AT(GreaterOrEqual), a, b)
