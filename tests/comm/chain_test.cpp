#include "src/comm/chain.h"

#include <gtest/gtest.h>

namespace owt::chain_test {
namespace {

TEST(Chain, ChunksAreSmallWhereRanksLieBetweenTheEnds) {
  EXPECT_EQ(chain_chunk(1 << 30, 2), 512 << 10);  // no rank waits for a chunk to be passed on
  EXPECT_EQ(chain_chunk(1 << 30, 4), 512 << 10);
  EXPECT_EQ(chain_chunk(4 << 20, 4), 256 << 10);
  EXPECT_EQ(chain_chunk(4 << 20, 10), 64 << 10);
  EXPECT_EQ(chain_chunk(4 << 20, 100), 32 << 10);
  EXPECT_EQ(chain_chunk(0, 4), 32 << 10);
  EXPECT_EQ(chain_chunk(1'000'003, 3) % 64, 0);
}

TEST(Chain, TheFirstChunkAddsAnEighthAtMostUnlessItIsTheSmallest) {
  for (int ranks = 3; ranks < 40; ++ranks)
    for (const int64_t bytes : {int64_t{1} << 18, int64_t{1} << 22, int64_t{1} << 26}) {
      const int64_t chunk = chain_chunk(bytes, ranks);
      if (chunk == 32 << 10) continue;
      EXPECT_LE(8 * (ranks - 2) * chunk, bytes) << ranks << " ranks, " << bytes << " bytes";
    }
}

}  // namespace
}  // namespace owt::chain_test
