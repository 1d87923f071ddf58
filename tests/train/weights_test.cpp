#include "src/train/weights.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/comm/threads.h"
#include "src/core/memory.h"
#include "src/parallel/spread_weights.h"
#include "src/system/files.h"
#include "src/train/equality.h"
#include "tests/support/models.h"
#include "tests/support/temp_folder.h"

namespace owt::weights_test {
namespace {

// fc1 and fc2 have 64 MB each, 16 pieces. Under owt-d fc2 is split by inputs.
const char* const kWideModel = R"(
name = "wide"
input = [4, 4, 4]
classes = 64
layer = [
  { name = "fc1", type = "dense", out = 262144, bias = { init = { type = "gaussian", std = 1.0 } } },
  { name = "fc2", type = "dense", out = 64 },
]
)";

struct Rank {
  Rank(Strategy strategy, Communicator& comm, int model_ranks = 0)
      : plan(make_plan(model_of(kWideModel),
                       {.ranks = comm.ranks(), .strategy = strategy, .step_rows = 12, .model_ranks = model_ranks})),
        groups(plan, comm),
        model(model_of(kWideModel), plan, comm.rank()) {
    model.allocate({});
  }
  Plan plan;
  Groups groups;
  RankModel model;
};

// On rank 0: the peak memory that all ranks, threads of this process, allocated for `work` in addition to existing
// memory.
template <class Work>
int64_t memory_for(Communicator& comm, const Work& work) {
  const auto wait_for_all = [&] {
    Tensor unused({1});
    unused.zero();
    comm.all_reduce(unused, {}).wait();
  };
  wait_for_all();
  const int64_t before = host_memory().in_use;
  if (comm.rank() == 0) restart_host_memory_peak();
  wait_for_all();
  work();
  wait_for_all();
  return comm.rank() == 0 ? host_memory().most - before : 0;
}

uint64_t save(const std::string& path, Rank& rank) {
  return save_tensors(
      path, rank.plan, rank.model, [](Param& param) { return param.value; }, rank.groups);
}

TEST(Weights, AreDrawnWrittenAndReadInPiecesOnAnyNumberOfRanks) {
  const TempFolder folder;
  constexpr int64_t kAFewBytes = 1 << 20;
  uint64_t first_sum = 0;
  run_ranks(4, 1, [&](Communicator& comm) {
    Rank rank(Strategy::kOwtA, comm);
    const int64_t to_draw = memory_for(comm, [&] { rank.model.initialize(3); });
    EXPECT_LE(to_draw, 4 * 3 * kPieceBytes + kAFewBytes);
    uint64_t sum = 0;
    const int64_t to_write = memory_for(comm, [&] { sum = save(folder.file("4"), rank); });
    EXPECT_LE(to_write, (3 + 3) * kPieceBytes + kAFewBytes);
    if (comm.rank() == 0) first_sum = sum;
  });
  EXPECT_EQ(file_checksum(folder.file("4")), first_sum);
  run_ranks(3, 1, [&](Communicator& comm) {
    Rank rank(Strategy::kOwtD, comm);
    ASSERT_TRUE(rank.plan.layers[1].by_inputs());
    const int64_t to_read = memory_for(comm, [&] { load_weights(folder.file("4"), rank.model, rank.groups); });
    EXPECT_LE(to_read, (4 + 2 * 3) * kPieceBytes + kAFewBytes);
    uint64_t sum = 0;
    const int64_t to_write = memory_for(comm, [&] { sum = save(folder.file("3"), rank); });
    EXPECT_LE(to_write, (3 + 2) * kPieceBytes + kAFewBytes);
    EXPECT_EQ(sum, comm.rank() == 0 ? first_sum : 0u);
  });
}

TEST(Weights, AreSpreadOverReplicasInPieces) {
  run_ranks(4, 1, [&](Communicator& comm) {
    Rank rank(Strategy::kOwtA, comm, 2);
    rank.model.initialize(static_cast<uint64_t>(comm.rank() < 2 ? 3 : 4));
    const int64_t to_spread = memory_for(comm, [&] { spread_weights(rank.model, rank.groups); });
    EXPECT_LE(to_spread, 2 * kPieceBytes + (1 << 20));
    check_equality(rank.plan, rank.model, rank.groups, 0, "");
    Rank wanted(Strategy::kOwtA, comm, 2);
    wanted.model.initialize(3);
    const Tensor found = rank.model.params()[0]->value, drawn = wanted.model.params()[0]->value;
    EXPECT_TRUE(std::equal(found.data(), found.data() + found.elements(), drawn.data()));
  });
}

}  // namespace
}  // namespace owt::weights_test
