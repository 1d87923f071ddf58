// Runs that continue from their mirrors after ranks were lost or have joined.
#include "src/mirror/mirror.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <latch>
#include <memory>
#include <numeric>

#include "src/comm/threads.h"
#include "src/core/memory.h"
#include "src/predict/mirror_need.h"
#include "src/recipe/schedule.h"
#include "src/train/job.h"
#include "src/train/worker_files.h"
#include "tests/support/harness.h"
#include "tests/support/message_of.h"
#include "tests/support/runs.h"
#include "tests/support/temp_folder.h"

namespace owt::mirror_test {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

// What differs between worlds with more and fewer ranks.
struct World {
  int ranks = 4;
  const char* strategy = "dp";
  int model_ranks = 0;
  Overrides more{};
};

Job job_of(const World& world, const std::string& recipe, Device device) {
  const Overrides changes = merged({{"parallel.workers", std::to_string(world.ranks)},
                                    {"parallel.strategy", world.strategy},
                                    {"parallel.model_ranks", std::to_string(world.model_ranks)},
                                    {"run.device", name_of(device)}},
                                   world.more);
  Job job;
  job.settings = small_settings(recipe, changes);
  job.plan = job.settings.plan_to_run();
  open_data(job, "");
  return job;
}

// A recipe with a running average and a frozen layer.
std::string recipe_with_averages() {
  std::string recipe = kSmallRecipe;
  const auto insert_before = [&](const std::string& place, const std::string& text) {
    recipe.insert(recipe.find(place), text);
  };
  insert_before("[[model.layer]]\nname = \"relu2\"", "[[model.layer]]\nname = \"bn\"\ntype = \"batch_norm\"\n");
  insert_before("learning_rate", "freeze = [\"conv1\"]\nema = 0.9\n");
  return recipe;
}

RunState state_of(int64_t step) {
  RunState state;
  state.step = step;
  state.epoch = 1;
  state.images_in_epoch = step * 24;
  state.step_rows = 24;
  state.images = 240;
  state.conv_choices = {{"conv1", "by-shape"}};
  return state;
}

Mirrored mirrored(Worker& worker) { return {worker.model, worker.optimizer, worker.step}; }

// A rank of a run that trains one step after the other.
struct TrainingRank {
  TrainingRank(const Job& job, Communicator& comm) : job(job), worker(job.settings, job.plan, comm) {
    worker.model.initialize(job.settings.run.seed);
    if (worker.step.ema()) worker.step.ema()->begin(worker.step.stream());
    batches = training_batches(job, comm.rank(), 0, 0);
    worker.step.feed_from(*batches);
  }
  void train(int64_t steps) {
    for (int64_t i = 0; i < steps; ++i, ++step)
      worker.step.train(batches->next(worker.step.stream()), step, {.front = 0.02, .back = 0.02, .kept = 0.9}, false);
  }

  const Job& job;
  Worker worker;
  std::unique_ptr<BatchSource> batches;
  int64_t step = 0;
};

// Leaves the world also after an exception.
struct LeavesWorld {
  ~LeavesWorld() { mirror.leave_world(); }
  Mirror& mirror;
};

using Values = std::map<std::string, std::vector<float>>;

// All that a checkpoint has of a rank.
Values values_of(Worker& worker) {
  Values all;
  const auto add = [&](const std::string& name, const Tensor& values) {
    all[name] = values.defined() && values.elements() > 0 ? download(values) : std::vector<float>();
  };
  for (Param* param : worker.model.params()) {
    add(param->name, param->value);
    add("copy16 of " + param->name, param->copy16);
    if (worker.step.ema()) add("average of " + param->name, worker.step.ema()->of(*param));
    if (param->role != ParamRole::kTrained) continue;
    for (const Tensor& state : worker.optimizer.states(*param, worker.step.updated(*param)))
      add(concat("state ", all.size(), " of ", param->name), state);
  }
  return all;
}

// The names of the tensors that are not the same bit for bit.
std::vector<std::string> different(const Values& a, const Values& b) {
  std::vector<std::string> names;
  for (const auto& [name, values] : a)
    if (!b.contains(name) || b.at(name) != values) names.push_back(name);
  if (a.size() != b.size()) names.push_back("another number of tensors");
  return names;
}

class MirrorTest : public DeviceTest {
 protected:
  std::string folder() const { return folder_.path(); }

  // Trains three steps, mirrors them and writes a checkpoint, trains two more and leaves the world.
  void train_and_mirror(const World& world, const std::string& recipe, const std::vector<std::vector<Mirror>*>& sets) {
    const Job job = job_of(world, recipe, device());
    run_ranks(
        world.ranks, 1,
        [&](Communicator& comm) {
          TrainingRank rank(job, comm);
          rank.train(3);
          for (auto* set : sets) (*set)[static_cast<size_t>(comm.rank())].renew(mirrored(rank.worker), state_of(3));
          save_worker(folder(), job.plan, rank.worker);
          const Values before = values_of(rank.worker);
          rank.train(2);
          const bool has_weights = std::ranges::any_of(before, [](const auto& one) { return !one.second.empty(); });
          EXPECT_EQ(different(values_of(rank.worker), before).empty(), !has_weights);  // a stage may have no weights
          for (auto* set : sets) {
            (*set)[static_cast<size_t>(comm.rank())].complete();
            (*set)[static_cast<size_t>(comm.rank())].leave_world();
          }
        },
        device());
  }

  // The ranks agree on this step, restore it, and have what a checkpoint of the step gives. Returns the bytes that each
  // rank has received.
  std::vector<int64_t> expect_restored(const World& world, const std::string& recipe,
                                       const std::vector<Mirror*>& mirrors, int64_t step, bool renews = false) {
    const Job job = job_of(world, recipe, device());
    std::vector<int64_t> received(mirrors.size());
    run_ranks(
        world.ranks, 1,
        [&](Communicator& comm) {
          const auto rank = static_cast<size_t>(comm.rank());
          const LeavesWorld leaves{*mirrors[rank]};
          ASSERT_EQ(mirrors[rank]->agree(comm, device()), state_of(step));
          Worker loaded(job.settings, job.plan, comm), restored(job.settings, job.plan, comm);
          load_worker(folder(), loaded);
          if (loaded.step.ema()) load_ema(folder(), loaded);
          received[rank] = mirrors[rank]->restore(mirrored(restored));
          EXPECT_THAT(different(values_of(restored), values_of(loaded)), IsEmpty()) << "rank " << rank;
          if (!renews) return;
          const int64_t before = mirrors[rank]->bytes();
          const auto bytes_after_renewal = [&] {
            mirrors[rank]->renew(mirrored(restored), state_of(step));
            mirrors[rank]->complete();
            return mirrors[rank]->bytes();
          };
          const int64_t of_new = bytes_after_renewal() - before;  // the earlier copies stay until the next renewal
          EXPECT_EQ(bytes_after_renewal(), 2 * of_new);
        },
        device());
    return received;
  }

  TempFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Devices, MirrorTest, ::testing::ValuesIn(devices()), device_name);

std::vector<Mirror*> without(std::vector<Mirror>& all, const std::vector<size_t>& lost) {
  std::vector<Mirror*> left;
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (std::ranges::find(lost, rank) == lost.end()) left.push_back(&all[rank]);
  return left;
}

TEST_P(MirrorTest, TheOthersHaveTheStateOfACheckpointAfterTheLossOfARank) {
  const std::string with_averages = recipe_with_averages();
  const Overrides gpipe{{"pipeline.schedule", "gpipe"}, {"pipeline.micro_batches", "2"}};
  struct Case {
    World before, after;
    std::string recipe = kSmallRecipe;
  };
  const auto same = [](const char* strategy) { return Case{{4, strategy}, {3, strategy}}; };
  std::vector<Case> cases{same("dp-zero"), same("owt-a"), {{4, "owt-c", 2}, {3, "owt-b"}, with_averages}};
  if (device() == Device::kCpu)
    for (const Case& more : std::vector<Case>{
             same("dp"),
             same("dp-star"),
             same("owt-b"),
             same("owt-c"),
             same("owt-d"),
             same("mp"),
             same("mp-dense"),
             {{4, "pipeline", 0, gpipe}, {3, "pipeline", 0, gpipe}},
             {{4, "pipeline", 2, gpipe}, {3, "dp-zero"}},
             {{4, "owt-d", 2}, {3, "mp"}},
             {{4, "dp-zero"}, {3, "dp-star"}, with_averages},
             {{4, "dp-star", 0, with_optimizer("adamw")}, {3, "owt-d", 0, with_optimizer("adamw")}},
             {{4, "owt-a", 0, {{"run.precision", "bf16"}}}, {3, "owt-a", 0, {{"run.precision", "bf16"}}}}})
      cases.push_back(more);
  for (const auto& [before, after, recipe] : cases) {
    std::vector<std::vector<Mirror>> sets;
    std::vector<std::vector<Mirror>*> all;
    for (int i = 0; i < 3; ++i) sets.emplace_back(4);
    for (auto& set : sets) all.push_back(&set);
    train_and_mirror(before, recipe, all);
    for (const size_t i : {0, 1, 2}) {
      const size_t lost = std::vector<size_t>{0, 1, 3}[i];
      SCOPED_TRACE(concat(before.strategy, ", ", after.strategy, ", lost ", lost));
      expect_restored(after, recipe, without(sets[i], {lost}), 3);
      if (HasFailure()) return;
    }
  }
}

std::vector<Mirror*> all_of(std::vector<Mirror>& mirrors) { return without(mirrors, {}); }

// A rank without copies may have any number.
TEST_P(MirrorTest, ARankThatJoinsGetsItsPartFromTheOthers) {
  for (const char* strategy : {"dp", "dp-zero", "owt-a"})
    for (const size_t joins : {0, 3}) {
      SCOPED_TRACE(concat(strategy, ", joins as rank ", joins));
      std::vector<Mirror> before(3);
      Mirror joined;
      train_and_mirror({3, strategy}, kSmallRecipe, {&before});
      std::vector<Mirror*> mirrors = all_of(before);
      mirrors.insert(mirrors.begin() + static_cast<ptrdiff_t>(joins), &joined);
      const std::vector<int64_t> received = expect_restored({4, strategy}, kSmallRecipe, mirrors, 3);
      for (size_t rank = 0; rank < 4; ++rank)
        if (rank == joins || std::string(strategy) == "dp") {
          EXPECT_EQ(received[rank] > 0, rank == joins);
        }
    }
}

int64_t bytes_of_values(const Job& job, int rank, bool dense) {
  int64_t bytes = 0;
  const RankModel model(job.settings.model, job.plan, rank);
  for (const Param* param : model.params())
    if (!dense || param->name.starts_with("fc")) bytes += param->bytes();
  return bytes;
}

TEST_P(MirrorTest, SendsAndReceivesWhatNoOtherRankHas) {
  std::vector<Mirror> dp(4), owt_a(4);
  train_and_mirror({4, "dp"}, kSmallRecipe, {&dp});
  EXPECT_EQ(dp[0].bytes_per_renewal(), 0);
  EXPECT_THAT(expect_restored({3, "dp"}, kSmallRecipe, without(dp, {1}), 3), Each(0));

  train_and_mirror({4, "owt-a"}, kSmallRecipe, {&owt_a});
  const Job job = job_of({4, "owt-a"}, kSmallRecipe, device());
  for (int rank = 0; rank < 4; ++rank) {
    const auto r = static_cast<size_t>(rank);
    // Weights and velocity of the dense layers; a copy also has the previous rank's.
    EXPECT_EQ(owt_a[r].bytes_per_renewal(), 2 * bytes_of_values(job, rank, true));
    EXPECT_EQ(owt_a[r].bytes(), 2 * bytes_of_values(job, rank, false) + 2 * bytes_of_values(job, (rank + 3) % 4, true));
  }
  const std::vector<int64_t> received = expect_restored({3, "owt-a"}, kSmallRecipe, without(owt_a, {1}), 3);
  const Job after = job_of({3, "owt-a"}, kSmallRecipe, device());
  for (const size_t rank : {0, 1, 2}) {
    const size_t was = rank == 0 ? 0 : rank + 1;
    int64_t missing = 0;
    for (size_t i = 0; i < job.plan.layers.size(); ++i) {
      const LayerPlan &old = job.plan.layers[i], &now = after.plan.layers[i];
      for (int64_t row = 0; row < now.out.elements() && !now.parts.empty(); ++row) {
        const auto in = [&](const Slice& part) { return row >= part.begin && row < part.end; };
        const bool has = in(old.parts[was]) || in(old.parts[(was + 3) % 4]);
        for (const Shape& param : now.params)
          if (in(now.parts[rank]) && !has) missing += 2 * param.row_elements() * 4;
      }
    }
    EXPECT_EQ(received[rank], missing);
  }
}

// Sends and holds what the plan says, on every rank.
void expect_as_planned(const World& world, const std::string& recipe) {
  SCOPED_TRACE(concat(world.ranks, " x ", world.strategy, " in groups of ", world.model_ranks));
  const Job job = job_of(world, recipe, Device::kCpu);
  const std::vector<MirrorNeed> planned = mirror_needs(job.plan);
  std::vector<Mirror> mirrors(static_cast<size_t>(world.ranks));
  run_ranks(world.ranks, 1, [&](Communicator& comm) {
    TrainingRank rank(job, comm);
    const auto number = static_cast<size_t>(comm.rank());
    const LeavesWorld leaves{mirrors[number]};
    for (int64_t step = 0; step < 2; ++step) {
      mirrors[number].renew(mirrored(rank.worker), state_of(step));
      mirrors[number].complete();
    }
    EXPECT_EQ(mirrors[number].bytes_per_renewal(), planned[number].sent_bytes) << "rank " << number;
    EXPECT_EQ(mirrors[number].bytes(), planned[number].held_bytes) << "rank " << number;
  });
}

// Under owt-d a dense layer with a bias is split by inputs.
TEST(MirrorBytes, AreThoseOfThePlan) {
  const std::string with_averages = recipe_with_averages();
  const Overrides gpipe{{"pipeline.schedule", "gpipe"}, {"pipeline.micro_batches", "2"}};
  for (const Strategy strategy : all_strategies()) {
    if (facts_of(strategy).updates == Updates::kServers) continue;
    const bool in_stages = facts_of(strategy).rounds == Rounds::kEqualParts;
    for (const int ranks : {1, 3, 4})
      for (const int model_ranks : {0, 2}) {
        if (model_ranks > 0 && ranks != 4) continue;
        World world{ranks, name_of(strategy), model_ranks, in_stages ? gpipe : Overrides()};
        expect_as_planned(world, kSmallRecipe);
        world.more = merged(world.more, with_optimizer("adamw"));
        expect_as_planned(world, with_averages);
      }
  }
}

TEST_P(MirrorTest, KeepsTwoCopiesHoweverManyThereWere) {
  std::vector<Mirror> mirrors(3);
  const Job job = job_of({3, "owt-a"}, kSmallRecipe, device());
  run_ranks(
      3, 1,
      [&](Communicator& comm) {
        TrainingRank rank(job, comm);
        Mirror& mirror = mirrors[static_cast<size_t>(comm.rank())];
        const LeavesWorld leaves{mirror};
        int64_t one = 0;
        for (int64_t step = 0; step < 5; ++step) {
          mirror.renew(mirrored(rank.worker), state_of(step));
          mirror.complete();
          if (step == 0) one = mirror.bytes();
          EXPECT_EQ(mirror.bytes(), step == 0 ? one : 2 * one);
          if (step == 4) save_worker(folder(), job.plan, rank.worker);
          rank.train(1);
        }
      },
      device());
  expect_restored({2, "owt-c"}, kSmallRecipe, without(mirrors, {0}), 4);
}

std::optional<int64_t> agreed(const std::vector<Mirror*>& mirrors) {
  std::vector<std::optional<RunState>> states(mirrors.size());
  run_ranks(static_cast<int>(mirrors.size()), 1, [&](Communicator& comm) {
    states[static_cast<size_t>(comm.rank())] = mirrors[static_cast<size_t>(comm.rank())]->agree(comm, Device::kCpu);
  });
  for (const auto& state : states) EXPECT_EQ(state, states[0]);
  return states[0] ? std::optional(states[0]->step) : std::nullopt;
}

class LossTest : public MirrorTest {};
INSTANTIATE_TEST_SUITE_P(Cpu, LossTest, ::testing::Values(Device::kCpu), device_name);

TEST_P(LossTest, OfTwoNeighboursLosesPartsThatOnlyTheyHad) {
  for (const char* strategy : {"dp", "owt-a"}) {
    std::vector<Mirror> neighbours(4), others(4), ends(4), none(2);
    train_and_mirror({4, strategy}, kSmallRecipe, {&neighbours, &others, &ends});
    const bool dp = std::string(strategy) == "dp";
    EXPECT_EQ(agreed(without(neighbours, {1, 2})), dp ? std::optional<int64_t>(3) : std::nullopt);
    EXPECT_EQ(agreed(without(others, {1, 3})), 3);
    EXPECT_EQ(agreed(without(ends, {3, 0})), dp ? std::optional<int64_t>(3) : std::nullopt);
    EXPECT_EQ(agreed(all_of(none)), std::nullopt);
    for (const Mirror& mirror : neighbours)  // useless copies are freed
      EXPECT_TRUE(dp || &mirror == &neighbours[1] || &mirror == &neighbours[2] || mirror.bytes() == 0);
  }
}

// Stages whose parameters no remaining rank has.
TEST_P(LossTest, OfTwoStagesIsSeenInTheTensorsThatNobodyHas) {
  std::vector<Mirror> mirrors(4);
  train_and_mirror({4, "pipeline"}, kSmallRecipe, {&mirrors});
  EXPECT_EQ(agreed(without(mirrors, {0, 1})), std::nullopt);
}

// Rank 1 ends when the others have copied the third mirror and wait for messages, which it does not send. Renewals
// before the third allocate memory, which ranks do together.
TEST_P(LossTest, DuringARenewalLeavesTheMirrorBefore) {
  for (const char* strategy : {"dp", "owt-a"}) {
    const bool dp = std::string(strategy) == "dp";
    std::vector<Mirror> mirrors(4);
    const World world{4, strategy};
    const Job job = job_of(world, kSmallRecipe, Device::kCpu);
    std::latch copied(4);
    const auto body = [&](Communicator& comm) {
      TrainingRank rank(job, comm);
      Mirror& mirror = mirrors[static_cast<size_t>(comm.rank())];
      const LeavesWorld leaves{mirror};
      for (int64_t step = 1; step <= 3; ++step) {
        rank.train(1);
        if (step == (dp ? 3 : 2)) save_worker(folder(), job.plan, rank.worker);
        if (step == 3 && comm.rank() == 1) {
          mirror.complete();
          copied.arrive_and_wait();
          throw Error("lost");
        }
        mirror.renew(mirrored(rank.worker), state_of(step));
      }
      copied.arrive_and_wait();
      EXPECT_THROW(mirror.complete(), Aborted);
    };
    EXPECT_EQ(message_of([&] { run_ranks(4, 1, body); }), "lost");
    // Every rank has all weights under dp.
    expect_restored({3, strategy}, kSmallRecipe, without(mirrors, {1}), dp ? 3 : 2);
  }
}

// Ranks 1 and 3 of four are lost one after the other. Then the copies of both generations of ranks count.
TEST_P(LossTest, CanFollowALoss) {
  for (const bool renews : {false, true}) {
    std::vector<Mirror> mirrors(4);
    train_and_mirror({4, "owt-a"}, kSmallRecipe, {&mirrors});
    expect_restored({3, "owt-a"}, kSmallRecipe, without(mirrors, {1}), 3, renews);
    expect_restored({2, "owt-d"}, kSmallRecipe, without(mirrors, {1, 3}), 3, renews);
    // The previous rank has copies of its part only if the mirrors were renewed.
    EXPECT_EQ(agreed({&mirrors[2]}), renews ? std::optional<int64_t>(3) : std::nullopt);
  }
}

void wait_for_all(Communicator& comm) {
  Tensor unused({1});
  unused.zero();
  comm.all_reduce(unused, {}).wait();
}

// All ranks, which are threads of this process, need memory for few pieces besides the copies and the weights.
TEST_P(LossTest, OfLargeTensorsIsRepairedInPieces) {
  const std::string recipe = recipe_of("[1, 8, 8]", "side = 8\ntrain_images = 24\nbatch = 24\n",
                                       R"(
  { name = "fc1", type = "dense", out = 100000 },
  { name = "relu", type = "relu" },
  { name = "fc2", type = "dense", out = 64 },
  { name = "relu2", type = "relu" },
  { name = "fc3", type = "dense", out = 10 })",
                                       0.01);
  std::vector<Mirror> mirrors(4), measured(4);
  train_and_mirror({4, "owt-d"}, recipe, {&mirrors, &measured});
  expect_restored({3, "owt-d"}, recipe, without(mirrors, {1}), 3);
  const std::vector<Mirror*> left = without(measured, {1});
  const Job job = job_of({3, "owt-d"}, recipe, Device::kCpu);
  ASSERT_TRUE(job.plan.layers[2].by_inputs());
  run_ranks(3, 1, [&](Communicator& comm) {
    Mirror& mirror = *left[static_cast<size_t>(comm.rank())];
    const LeavesWorld leaves{mirror};
    mirror.agree(comm, Device::kCpu);
    Worker worker(job.settings, job.plan, comm);
    mirrored_tensors(mirrored(worker));  // allocates the optimizer's states
    wait_for_all(comm);
    const int64_t before = host_memory().in_use;
    if (comm.rank() == 0) restart_host_memory_peak();
    wait_for_all(comm);
    EXPECT_EQ(mirror.restore(mirrored(worker)) > 0, comm.rank() == 0);  // the others have what they need
    wait_for_all(comm);
    // Each rank: its part of a piece, and a message.
    EXPECT_LE(host_memory().most - before, 3 * 2 * kPieceBytes + (1 << 20));
  });
}

}  // namespace
}  // namespace owt::mirror_test
