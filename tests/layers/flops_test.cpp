// The FLOPs of every layer, counted by hand: a multiply-add is 2.
#include <gtest/gtest.h>

#include "tests/support/harness.h"

namespace owt::flops_test {
namespace {

struct Work {
  const char* keys;
  Shape in;
  double flops;
};

TEST(Flops, OfEveryLayerAreThoseOfItsDefinition) {
  const Work works[] = {
      {"type='conv' out=4 kernel=[3,2]", {5, 7, 8, 6}, 2.0 * 5 * (5 * 7 * 4) * (3 * 2 * 6)},
      {"type='conv' out=4 kernel=3 groups=2 stride=2 pad=1", {1, 7, 9, 6}, 2.0 * (4 * 5 * 4) * (3 * 3 * 3)},
      {"type='local' out=4 kernel=3 stride=2 pad=1", {2, 7, 9, 6}, 2.0 * 2 * (4 * 5 * 4) * (3 * 3 * 6)},
      {"type='dense' out=7", {3, 5}, 2.0 * 3 * 5 * 7},
      {"type='dense' out=7", {3, 2, 2, 5}, 2.0 * 3 * 20 * 7},
      {"type='max_pool' kernel=3 stride=2", {2, 7, 9, 5}, 2.0 * (3 * 4 * 5) * 9},
      {"type='avg_pool' kernel=2", {2, 6, 4, 5}, 2.0 * (3 * 2 * 5) * 4},
      {"type='global_avg_pool'", {2, 6, 4, 5}, 2.0 * 6 * 4 * 5},
      {"type='lrn' size=3", {2, 6, 4, 5}, 2.0 * 6 * 4 * 5 * (3 + 5)},
      {"type='lrn' size=3 within=true", {2, 6, 4, 5}, 2.0 * 6 * 4 * 5 * (9 + 5)},
      {"type='batch_norm'", {2, 6, 4, 5}, 2.0 * 6 * 4 * 5 * 8},
      {"type='batch_norm'", {2, 6}, 2.0 * 6 * 8},
      {"type='relu'", {2, 6}, 0},
      {"type='activation' kind='silu'", {2, 6}, 2.0 * 6 * 4},
      {"type='activation' kind='prelu'", {2, 3, 3, 6}, 2.0 * 9 * 6},
      {"type='dropout' rate=0.5", {2, 6}, 0},
      {"type='drop_path' rate=0.5", {2, 6}, 0},
      {"type='layer_norm'", {2, 6, 4, 5}, 2.0 * 6 * 4 * 5 * 8},
      {"type='activation' kind='hard_swish'", {2, 6}, 2.0 * 6 * 3},
      {"type='conv' out=4 kernel=3 dilation=2", {2, 7, 9, 6}, 2.0 * 2 * (3 * 5 * 4) * (3 * 3 * 6)},
  };
  for (const Work& work : works) EXPECT_EQ(layer_from(work.keys, work.in)->flops(work.in), work.flops) << work.keys;
}

}  // namespace
}  // namespace owt::flops_test
