// Workers and servers as threads: their pushes, when workers continue, and how they end.
#include "src/server/parameter_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <memory>
#include <mutex>

#include "src/comm/bf16_transport.h"
#include "src/comm/profiled.h"
#include "src/comm/threads.h"
#include "src/core/bf16.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_updates.h"
#include "src/plan/wire_bytes.h"
#include "tests/support/front_model.h"
#include "tests/support/message_of.h"

namespace owt::parameter_server_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kKernel = 3;

const ConsistencyRules kSynchronous, kOneAhead{.delay = 1, .pushes = 1}, kThreeAhead{.delay = 3, .pushes = 1},
    kAnyNumberAhead{.delay = kNoBound, .pushes = 1}, kTwoAheadByTask{.delay = 2}, kByThree{.delay = 2, .pushes = 3};
const std::vector<ConsistencyRules> kAllRules{kSynchronous,    kOneAhead,       kThreeAhead,
                                              kAnyNumberAhead, kTwoAheadByTask, kByThree};

Plan served(int ranks, const ConsistencyRules& rules, int64_t bucket_bytes = kEachItsOwn, int servers_apart = 0) {
  return make_plan(front_model(kKernel), {.ranks = ranks,
                                          .strategy = Strategy::kParameterServer,
                                          .step_rows = ranks,
                                          .bucket_bytes = bucket_bytes,
                                          .options = {.server = {.rules = rules, .servers = servers_apart}}});
}

// Adds gradients up in the weights.
void add_to_weights(std::span<const ParamPart> parts, const PushedFor&, double, int64_t) {
  for (const ParamPart& part : parts) {
    Tensor weights = part.value;
    for (int64_t i = 0; i < weights.elements(); ++i) weights.data()[i] += part.gradient.data()[i];
  }
}

// A rank's net, all weights zero, and its server.
struct Rank {
  Rank(const Plan& plan, Communicator& comm, const ParameterServer::Update& update = add_to_weights)
      : plan(plan), comm(comm), net(front_net(kKernel)) {
    server.emplace(
        plan, [this](int64_t layer) -> Layer& { return net.layer(layer); }, comm);
    server->update_with(update);
    if (filters_gradients(plan)) server->filter_with(1, [](const Param&) { return 0.0; });
  }

  // One step. Element i of every gradient is scale * (i + 1).
  void step(float scale) {
    push(scale);
    server->take_sums();
  }
  void push(
      float scale, const std::function<void()>& before_gradients = [] {}) {
    const Stream stream;
    Tensor sums({kStepSums}, DType::kF64);
    sums.zero();
    sums.data<double>()[kRowSum] = 1;
    server->start_push(sums, {.share = 1.0 / plan.computing_ranks()}, 0);
    before_gradients();
    contribute(net, scale);
    const int buckets = static_cast<int>(plan.buckets.size());
    for (int b = 0; b <= buckets; ++b) {
      if (b < buckets) server->start_gradients(b, stream);
      if (b == 0) continue;
      server->wait_for_gradients(b - 1, stream);
      server->push_own(b - 1);
      server->start_weights(b - 1, stream);
    }
    for (int b = 0; b < buckets; ++b) server->wait_for_weights(b, stream);
  }
  void expect_weights(float scale) {
    for (const Param* param : net.params())
      EXPECT_EQ(download(param->value), counted(param->value.elements(), scale)) << param->name;
  }

  const Plan& plan;
  Communicator& comm;
  Net net;
  std::optional<ParameterServer> server;
};

// A communicator that sends messages only when one of them is waited for, or all at once.
class LateMessages : public Communicator {
 public:
  explicit LateMessages(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int ranks() const override { return inner_->ranks(); }
  std::unique_ptr<Communicator> split(int) override { fail("not wanted here"); }
  void give_up() override { inner_->give_up(); }
  Event run(const Call& call) override {
    if (call.collective != Collective::kSend) return inner_->run(call);
    const std::lock_guard lock(mutex_);
    late_.push_back(std::make_shared<Message>([=, this] { inner_->run(call).wait(); }));
    return Event(late_.back());
  }
  void release() {
    const std::lock_guard lock(mutex_);
    for (const auto& message : late_) message->wait();
  }

 private:
  class Message : public Event::Pending {
   public:
    explicit Message(std::function<void()> send) : send_(std::move(send)) {}
    void wait() override { std::call_once(once_, send_); }
    bool done() const override { return false; }

   private:
    std::function<void()> send_;
    std::once_flag once_;
  };
  void open(const std::vector<Route>& routes) override { inner_->connect(routes); }

  std::unique_ptr<Communicator> inner_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Message>> late_;
};

// A rank whose answers to the others are late: they are sent through the second group that it makes.
class LateAnswers : public Communicator {
 public:
  explicit LateAnswers(Communicator& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int ranks() const override { return inner_.ranks(); }
  std::unique_ptr<Communicator> split(int color) override {
    if (++groups_ != 2) return inner_.split(color);
    auto answers = std::make_unique<LateMessages>(inner_.split(color));
    answers_ = answers.get();
    return answers;
  }
  Event run(const Call& call) override { return inner_.run(call); }
  void release() { answers_->release(); }

 private:
  Communicator& inner_;
  int groups_ = 0;
  LateMessages* answers_ = nullptr;
};

TEST(ParameterServer, TheOwnerMayChangeWeightsAfterSettlingThoughAnswersAreLate) {
  const Plan plan = served(2, kSynchronous);
  run_ranks(2, 1, [&](Communicator& comm) {
    LateAnswers late(comm);
    const bool is_late = comm.rank() == 0;
    Rank rank(plan, is_late ? static_cast<Communicator&>(late) : comm);
    rank.step(static_cast<float>(comm.rank() + 1));
    rank.server->settle(Stream());
    rank.expect_weights(3);
    if (!is_late) return;
    for (Param* param : rank.net.params()) fill(param->value, 99);
    late.release();
  });
}

TEST(ParameterServer, TakesWeightsThatWereChangedAfterSettling) {
  for (const ConsistencyRules& rules : kAllRules)
    for (const auto& [ranks, servers] : {std::pair(2, 0), {3, 1}, {3, 2}}) {
      SCOPED_TRACE(concat(rules.text(), ", ", servers, " servers of ", ranks, " ranks"));
      const Plan plan = served(ranks, rules, kEachItsOwn, servers);
      run_ranks(ranks, 1, [&, workers = ranks - servers](Communicator& comm) {
        Rank rank(plan, comm);
        for (int time = 0; time < 2; ++time) {
          rank.step(static_cast<float>(comm.rank() + 1));
          rank.server->settle(Stream());
          rank.expect_weights(static_cast<float>(workers * (workers + 1) / 2));
          for (Param* param : rank.net.params()) param->value.zero();
          rank.server->take_values();
        }
      });
    }
}

TEST(ParameterServer, EveryGradientOfEveryWorkerIsInTheWeightsOnceAfterSettling) {
  constexpr int kSteps = 12;
  for (const ConsistencyRules& rules : kAllRules)
    for (const int ranks : {2, 3, 4})
      for (const int64_t bytes : {kEachItsOwn, kTwoAndOne, kAllInOne}) {
        SCOPED_TRACE(concat(rules.text(), ", ", ranks, " ranks, ", bytes, " bytes"));
        const Plan plan = served(ranks, rules, bytes);
        run_ranks(ranks, 1, [&](Communicator& comm) {
          Rank rank(plan, comm);
          for (int round = 1; round <= 2; ++round) {
            for (int i = 0; i < kSteps; ++i) rank.step(static_cast<float>(comm.rank() + 1));
            rank.server->settle(Stream());
            rank.expect_weights(static_cast<float>(round * kSteps * ranks * (ranks + 1) / 2));
          }
          int64_t applied = 0;
          for (const auto& [updates, gradients] : rank.server->staleness()) applied += gradients;
          EXPECT_EQ(applied, 2 * kSteps * ranks * std::ssize(plan.buckets));
        });
      }
}

// The last ranks push nothing, and have the others' updates when all synchronise.
TEST(ParameterServer, ServersApartHaveWhatWorkersPushAndSendTheBytesOfThePlan) {
  constexpr int kSteps = 6;
  for (const ConsistencyRules& rules : kAllRules)
    for (const auto& [ranks, servers] : {std::pair(2, 1), {4, 1}, {4, 2}, {5, 3}})
      for (const int64_t bytes : {kEachItsOwn, kAllInOne}) {
        SCOPED_TRACE(concat(rules.text(), ", ", servers, " of ", ranks, " ranks, ", bytes, " bytes"));
        const Plan plan = served(ranks, rules, bytes, servers);
        const int workers = ranks - servers;
        run_ranks(ranks, 1, [&, servers = servers](Communicator& inner) {
          ProfiledCommunicator comm(inner, nullptr);
          Rank rank(plan, comm);
          for (int round = 1; round <= 2; ++round) {
            const int64_t before = comm.bytes();
            for (int i = 0; i < kSteps; ++i) rank.step(static_cast<float>(comm.rank() + 1));
            EXPECT_EQ(comm.bytes() - before, kSteps * bytes_in(plan, StepKind::kSynchronous, comm.rank()));
            rank.server->settle(Stream());
            rank.expect_weights(static_cast<float>(round * kSteps * workers * (workers + 1) / 2));
          }
          int64_t applied = 0, updates = 0;
          for (const auto& [late, gradients] : rank.server->staleness()) applied += gradients;
          EXPECT_EQ(applied, comm.rank() < workers ? 0 : 2 * kSteps * workers * std::ssize(plan.buckets));
          updates = rank.server->updates();
          EXPECT_EQ(updates, rules.by_task()     ? 2 * kSteps
                             : rules.pushes == 1 ? 2 * kSteps * workers
                                                 : 2 * ((kSteps * workers + 2) / 3));
        });
      }
}

TEST(ParameterServer, SynchronouslyWorkersOfServersApartHaveTheNewestWeightsAfterEveryStep) {
  const Plan plan = served(4, kSynchronous, kTwoAndOne, 1);
  run_ranks(4, 1, [&](Communicator& comm) {
    Rank rank(plan, comm);
    for (int i = 1; i <= 3; ++i) {
      rank.step(static_cast<float>(comm.rank() + 1));
      if (plan.computes(comm.rank())) rank.expect_weights(static_cast<float>(6 * i));
    }
  });
}

TEST(ParameterServer, SynchronouslyAllHaveTheNewestWeightsAfterEveryStep) {
  const Plan plan = served(3, kSynchronous);
  run_ranks(3, 1, [&](Communicator& comm) {
    Rank rank(plan, comm);
    for (int i = 1; i <= 3; ++i) {
      rank.step(static_cast<float>(comm.rank() + 1));
      rank.expect_weights(static_cast<float>(6 * i));
    }
    EXPECT_THAT(rank.server->staleness(), ::testing::ElementsAre(std::pair(0, 9 * std::ssize(plan.buckets))));
  });
}

// Rank 0 has no gradient before rank 1 has done the most steps by which it may lead.
TEST(ParameterServer, AWorkerContinuesWhileAnotherIsLate) {
  for (const auto& [rules, lead] : {std::pair(kOneAhead, 1), {kThreeAhead, 3}, {kAnyNumberAhead, 10}}) {
    SCOPED_TRACE(rules.text());
    const Plan plan = served(2, rules);
    std::latch has_led(1);
    run_ranks(2, 1, [&, lead = lead](Communicator& comm) {
      Rank rank(plan, comm);
      int done = 0;
      if (comm.rank() == 0)
        rank.push(1, [&] { has_led.wait(); }), ++done;
      else
        for (; done < lead; ++done) rank.push(1);
      if (comm.rank() == 1) has_led.count_down();
      for (; done < lead + 1; ++done) rank.push(1);
      rank.server->settle(Stream());
      rank.expect_weights(static_cast<float>(2 * (lead + 1)));
    });
  }
}

TEST(ParameterServer, AllHearTheSumsOfEveryStep) {
  const Plan plan = served(3, kThreeAhead);
  run_ranks(3, 1, [&](Communicator& comm) {
    Rank rank(plan, comm);
    for (int i = 0; i < 5; ++i) rank.push(0);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(rank.server->take_sums()[kRowSum], 3);
  });
}

TEST(ParameterServer, SendsTheBytesOfThePlan) {
  constexpr int kSteps = 4;
  for (const ConsistencyRules& rules : kAllRules)
    for (const bool half : {false, true}) {
      Plan plan = served(3, rules);
      plan.request.bf16_transport = half;
      plan = make_plan(front_model(kKernel), plan.request);
      run_ranks(3, 1, [&](Communicator& inner) {
        ProfiledCommunicator counted(inner, nullptr);
        const auto wire = make_bf16_transport(counted, Device::kCpu);
        Rank rank(plan, half ? *wire : counted);
        for (int i = 0; i < kSteps; ++i) rank.step(1);
        EXPECT_EQ(counted.bytes(), kSteps * bytes_in(plan, StepKind::kSynchronous, inner.rank()));
        rank.server->settle(Stream());
        EXPECT_EQ(rank.server->sent_by_server(), kSteps * plan.transfer(plan.of_step.weights).bytes);
      });
    }
}

// 1 + 2^-8 is between two bf16 numbers; a rank's gradient for itself is not rounded.
TEST(ParameterServer, Bf16TransportRoundsGradientsAndNoWeights) {
  Plan plan = served(2, kSynchronous);
  plan.request.bf16_transport = true;
  plan = make_plan(front_model(kKernel), plan.request);
  run_ranks(2, 1, [&](Communicator& comm) {
    const auto wire = make_bf16_transport(comm, Device::kCpu);
    Rank rank(plan, *wire);
    const float odd = 1 + 1.0f / 256;
    rank.step(odd);
    const float first = download(rank.net.params().front()->value).front();
    EXPECT_EQ(first, odd + from_bf16(to_bf16(odd)));
  });
}

TEST(ParameterServer, FiltersRoundWhatAllServersGetAndSendTheBytesOfThePlan) {
  constexpr int kSteps = 3;
  const float odd = 1 + 1.0f / 512;
  for (const char* value : {"bf16", "fp16", "fix8", "fix16", "coin8", "coin16"})
    for (const ConsistencyRules& rules : kAllRules) {
      SCOPED_TRACE(concat(value, ", ", rules.text()));
      Plan plan = served(3, rules);
      plan.request.options.server.filters = filters_from({value});
      plan = make_plan(front_model(kKernel), plan.request);
      run_ranks(3, 1, [&](Communicator& inner) {
        ProfiledCommunicator counted(inner, nullptr);
        Rank rank(plan, counted);
        for (int i = 0; i < kSteps; ++i) rank.step(odd);
        EXPECT_EQ(counted.bytes(), kSteps * bytes_in(plan, StepKind::kSynchronous, inner.rank()));
        rank.server->settle(Stream());
        for (const Param* param : rank.net.params()) {
          const std::vector<float> exact = owt::counted(param->value.elements(), 9 * odd),
                                   found = download(param->value);
          const double level = 9.0 / 100 * static_cast<double>(exact.size());
          for (size_t i = 0; i < exact.size(); ++i)
            EXPECT_NEAR(static_cast<double>(found[i]), static_cast<double>(exact[i]), level) << param->name << ' ' << i;
        }
      });
    }
}

// A push sends the largest entry of each tensor, its last one, and the other entries when they are due.
TEST(ParameterServer, WhatFiltersHoldBackComesLater) {
  for (const ConsistencyRules& rules : kAllRules) {
    SCOPED_TRACE(rules.text());
    Plan plan = served(2, rules);
    plan.request.options.server.filters = filters_from({"top:0.001"});
    plan = make_plan(front_model(kKernel), plan.request);
    run_ranks(2, 1, [&](Communicator& comm) {
      Rank rank(plan, comm);
      rank.step(1);
      rank.server->settle(Stream());
      for (const Param* param : rank.net.params()) {
        std::vector<float> last(static_cast<size_t>(param->value.elements()), 0.0f);
        last.back() = 2 * static_cast<float>(last.size());
        EXPECT_EQ(download(param->value), last) << param->name;
      }
      for (int i = 0; i < 300; ++i) rank.step(0);
      rank.server->settle(Stream());
      rank.expect_weights(2);
    });
  }
}

TEST(ParameterServer, ARankThatFailsEndsTheOthersWithItsCause) {
  for (const ConsistencyRules& rules : kAllRules)
    for (const int fails : {0, 2}) {
      const Plan plan = served(3, rules);
      const std::string error = message_of([&] {
        run_ranks(3, 1, [&](Communicator& comm) {
          Rank rank(plan, comm);
          for (int i = 0; i < 200; ++i) {
            if (comm.rank() == fails && i == 2) fail("the cause");
            rank.step(1);
          }
        });
      });
      EXPECT_THAT(error, HasSubstr("the cause")) << rules.text();
    }
}

TEST(ParameterServer, AServerThatFailsEndsAllRanksWithItsCause) {
  for (const ConsistencyRules& rules : kAllRules) {
    const Plan plan = served(3, rules);
    const std::string error = message_of([&] {
      run_ranks(3, 1, [&](Communicator& comm) {
        const int mine = comm.rank();
        Rank rank(plan, comm, [&](auto parts, const PushedFor& pushed, double scale, int64_t updates) {
          if (mine == 1 && updates == 3) fail("the server's cause");
          add_to_weights(parts, pushed, scale, updates);
        });
        for (int i = 0; i < 200; ++i) rank.step(1);
      });
    });
    EXPECT_THAT(error, HasSubstr("the server's cause")) << rules.text();
  }
}

TEST(ParameterServer, OthersCanContinueWithoutAnyWorkerButTheFirst) {
  EXPECT_THAT(dispensable_workers(served(5, kOneAhead, kAllInOne, 2)), ElementsAre(1, 2));
  EXPECT_THAT(dispensable_workers(served(3, kOneAhead)), IsEmpty());  // each has weights that no other worker has
}

TEST(ParameterServer, WhatHasNotTakenAStepNeedsNoOthersToEnd) {
  const Plan plan = served(2, kOneAhead);
  run_ranks(2, 1, [&](Communicator& comm) {
    Rank rank(plan, comm);
    rank.server->settle(Stream());
    rank.server.reset();
  });
}

}  // namespace
}  // namespace owt::parameter_server_test
