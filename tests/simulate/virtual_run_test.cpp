// Runs of a parameter server in virtual time: the same bits as dp if synchronous; rules, times and records.
#include "src/simulate/virtual_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "src/simulate/virtual_times.h"
#include "tests/support/fixed_compute.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt::virtual_run_test {
namespace {

using ::testing::HasSubstr;

// A row takes a millisecond, and an update of all workers or of one takes a millisecond.
std::unique_ptr<ComputeModel> fixed(const Settings& settings) {
  const Plan plan = make_plan(settings.model, {});
  std::vector<FixedCompute::Layer> layers(plan.layers.size());
  layers.front().forward = 1e-3;
  layers.front().update = 1e-3;
  return std::make_unique<FixedCompute>(std::move(layers));
}

class VirtualRunTest : public ::testing::Test, protected WholeRuns {
 protected:
  static Overrides of_workers(int workers, const Overrides& more = {}) {
    return merged(merged(kEveryStepLogged, {{"parallel.workers", std::to_string(workers)},
                                            {"parallel.strategy", "dp"},
                                            {"run.conv_algorithm", "direct"}}),
                  more);
  }

  SimulateOutcome simulated(const std::string& out, int workers, const VirtualCluster& cluster,
                            const Overrides& more = {}, int threads = 2) {
    SimulateOptions options;
    options.out = path(out);
    options.threads = threads;
    options.cluster = cluster;
    options.compute = fixed;
    return simulate(small_settings(kSmallRecipe, of_workers(workers, more)), options);
  }

  TrainOutcome trained(const std::string& out, int workers, const Overrides& more = {}) {
    TrainOptions options;
    options.out = path(out);
    options.threads = workers;
    return train(small_settings(kSmallRecipe, of_workers(workers, more)), options);
  }

  std::string weights(const std::string& out) const { return read_file(weights_of(out)); }
  std::vector<std::string> lines(const std::string& out) const { return text_lines(path(out) + "/metrics.jsonl"); }
  std::map<int64_t, double> seconds_of_steps(const std::string& out) const {
    std::map<int64_t, double> seconds;
    for (const std::string& line : lines(out))
      if (const nlohmann::json each = nlohmann::json::parse(line); each["kind"] == "train")
        seconds[each["step"]] = each["seconds"];
    return seconds;
  }
  nlohmann::json record(const std::string& out, const std::string& kind) const {
    for (const std::string& line : lines(out))
      if (const nlohmann::json each = nlohmann::json::parse(line); each["kind"] == kind) return each;
    return {};
  }
};

const VirtualCluster kAsynchronous{.rules = {.delay = kNoBound, .pushes = 1},
                                   .stragglers = {{.worker = 1, .factor = 4}}};

// Includes dropout, uneven shares of rows, a smaller step at the end of the epoch, and biases with separate rates.
TEST_F(VirtualRunTest, SynchronousIsDataParallelToTheLastBit) {
  for (const int workers : {1, 2, 3, 4}) {
    const std::string real = concat("real", workers), virtual_run = concat("virtual", workers);
    const Evaluation e = trained(real, workers).evaluation;
    const Evaluation v = simulated(virtual_run, workers, {}).virtual_run.evaluation;
    EXPECT_EQ(weights(real), weights(virtual_run)) << workers;
    EXPECT_EQ(read_file(optimizer_of(real)), read_file(optimizer_of(virtual_run))) << workers;
    EXPECT_EQ(losses(path(real)), losses(path(virtual_run))) << workers;
    EXPECT_NEAR(e.loss, v.loss, 1e-12) << workers;  // summed over the ranks
    EXPECT_EQ(e.top1, v.top1) << workers;
  }
}

// A real run with one worker updates at once and keeps no gradient. oneDNN does not add this many rows at a time, so
// another computation of that gradient would show on every processor.
TEST_F(VirtualRunTest, OneWorkerLearnsFromLargeBatchesToTheLastBitAsWell) {
  const Overrides large{{"data.train_images", "500"}, {"data.batch", "500"}, {"schedule.max_steps", "2"}};
  trained("real", 1, large);
  simulated("virtual", 1, {}, large);
  EXPECT_EQ(weights("real"), weights("virtual"));
}

TEST_F(VirtualRunTest, ConvolutionsAreChosenByTheirShapeAndNeverMeasured) {
  trained("real", 2, {{"run.conv_algorithm", "by-shape"}});
  trained("direct", 2);
  simulated("virtual", 2, {}, {{"run.conv_algorithm", "auto"}});
  EXPECT_EQ(weights("real"), weights("virtual"));
  EXPECT_NE(weights("direct"), weights("virtual"));  // else the net has no convolution that shows it
}

TEST_F(VirtualRunTest, SynchronousIsDataParallelWithEveryRule) {
  for (const char* type : {"adamw", "adagrad", "rmsprop", "rmsprop_warmup", "proximal"}) {
    const Overrides rule = with_optimizer(type);
    trained(concat("real-", type), 2, rule);
    simulated(concat("virtual-", type), 2, {}, rule);
    EXPECT_EQ(weights(concat("real-", type)), weights(concat("virtual-", type))) << type;
  }
}

TEST_F(VirtualRunTest, TheSameSeedGivesTheSameBitsWhateverComputes) {
  VirtualCluster cluster = kAsynchronous;
  cluster.stragglers.push_back({.share = 0.3, .factor = 3});
  simulated("a", 4, cluster, {}, 1);
  simulated("b", 4, cluster, {}, 3);
  EXPECT_EQ(weights("a"), weights("b"));
  std::vector<std::string> a = lines("a"), b = lines("b");
  a.erase(a.begin()), b.erase(b.begin());  // when, and by which command
  EXPECT_EQ(a, b);
  simulated("c", 4, cluster, {{"run.seed", "2"}});
  EXPECT_NE(weights("a"), weights("c"));
}

// Half of the tasks take twice as long, and half of them, drawn anew, three times as long.
TEST_F(VirtualRunTest, StragglersAreDrawnIndependently) {
  Job job;
  job.settings = small_settings(kSmallRecipe, of_workers(2));
  job.plan = plan_of_virtual_workers(job.settings);
  const VirtualCluster cluster{.stragglers = {{.share = 0.5, .factor = 2}, {.share = 0.5, .factor = 3}}};
  const std::unique_ptr<ComputeModel> compute = fixed(job.settings);
  VirtualTimes times(job, cluster, *compute);
  for (const int worker : {0, 1}) {
    std::set<int64_t> ms;
    for (int64_t task = 0; task < 100; ++task) ms.insert(std::llround(1e3 * times.of_task(worker, task, 1, 0)));
    EXPECT_THAT(ms, ::testing::ElementsAre(1, 2, 3, 6));
  }
}

// A worker with r rows computes for r ms; messages of N bytes take N / bandwidth, and the update a millisecond.
TEST_F(VirtualRunTest, AStepTakesWhatItsPartsTake) {
  const VirtualCluster cluster{.link = {0.5, 1e9}};
  const SimulateOutcome one = simulated("one", 1, cluster, {{"schedule.max_steps", "3"}});
  const Settings settings = small_settings(kSmallRecipe);
  const double compute = 1e-3 * static_cast<double>(settings.step_rows()), update = 1e-3;
  const auto bytes = static_cast<double>(one.virtual_run.record.bytes_to_servers) / 3;
  const double step = 3 * 0.5 + 2 * bytes / 1e9 + compute + update;
  EXPECT_NEAR(one.virtual_run.seconds, 3 * step, 1e-6);
  const SimulationRecord::SimulatedWorker& worker = one.virtual_run.record.workers.front();
  EXPECT_NEAR(worker.computing, compute / step, 1e-6);
  EXPECT_NEAR(worker.on_the_way, (step - compute - update) / step, 1e-6);
}

// Before its next task a worker spends time on sent and received messages: in three steps for three pulls and two
// pushes, and if it serves, for the other worker's too. The slow worker takes longer, and the others wait for it.
TEST_F(VirtualRunTest, MessagesTakeTimeOfTheProcessor) {
  const Overrides steps{{"schedule.max_steps", "3"}};
  for (const int servers : {1, kOnWorkers}) {
    VirtualCluster cluster{.servers = servers, .link = {0.5, 1e9}, .stragglers = {{.worker = 1, .factor = 4}}};
    const std::string name = concat("servers", servers);
    const VirtualOutcome without = simulated(name, 2, cluster, steps).virtual_run;
    cluster.message_work = 1e-5;
    const VirtualOutcome with = simulated(name + "-work", 2, cluster, steps).virtual_run;
    const double of_worker = static_cast<double>(with.record.bytes_to_servers) / (3 * 2);
    const double handled = (servers == kOnWorkers ? 2 : 1) * 5 * of_worker;
    EXPECT_NEAR(with.seconds - without.seconds, 4 * 1e-5 * handled, 1e-6) << servers;
    EXPECT_EQ(weights(name), weights(name + "-work"));
  }
}

// Half of what either worker pushes and pulls is its own; the other half uses links that are idle then.
TEST_F(VirtualRunTest, WorkersThatServeSendTheirOwnPartsNowhere) {
  const Overrides steps{{"schedule.max_steps", "3"}};
  const auto one = simulated("one", 1, {}, steps).virtual_run.record.bytes_to_servers / 3;
  const VirtualCluster cluster{.servers = kOnWorkers, .link = {0.5, 1e9}};
  const VirtualOutcome two = simulated("two", 2, cluster, steps).virtual_run;
  const int64_t half = one / 2;
  EXPECT_EQ(two.record.bytes_to_servers, 3 * 2 * half);
  EXPECT_EQ(two.record.bytes_to_workers, 3 * 2 * half);
  EXPECT_FALSE(two.record.each_server);
  for (const SimulationRecord::SimulatedWorker& each : two.record.workers) {
    EXPECT_EQ(each.link.out, 3. * 2 * static_cast<double>(half));
    EXPECT_EQ(each.link.in, each.link.out);
  }
  const double rows = static_cast<double>(small_settings(kSmallRecipe).step_rows()) / 2;
  const double step = 3 * 0.5 + 2 * static_cast<double>(half) / 1e9 + 1e-3 * rows + 1e-3 / 2;
  EXPECT_NEAR(two.seconds, 3 * step, 1e-6);
  // In four times as narrow links of a server that both share.
  const VirtualCluster apart{.servers = 1, .link = {0.5, 1e9}};
  const double shared = 3 * 0.5 + 2 * 4 * static_cast<double>(half) / 1e9 + 1e-3 * rows + 1e-3;
  EXPECT_NEAR(simulated("apart", 2, apart, steps).virtual_run.seconds, 3 * shared, 1e-6);
  EXPECT_EQ(simulated("alone", 1, cluster, steps).virtual_run.record.bytes_to_servers, 0);
}

TEST_F(VirtualRunTest, LinksOfServersCarryWhatThoseOfTheWorkersDo) {
  const VirtualCluster cluster{.filters = filters_from({"bf16"}), .servers = 2, .link = {0.5, 1e9}};
  const SimulationRecord record = simulated("apart", 3, cluster).virtual_run.record;
  LinkBytes workers;
  for (const SimulationRecord::SimulatedWorker& each : record.workers)
    workers.out += each.link.out, workers.in += each.link.in;
  EXPECT_EQ(workers.out, static_cast<double>(record.bytes_to_servers));
  EXPECT_EQ(workers.in, static_cast<double>(record.bytes_to_workers));
  ASSERT_TRUE(record.each_server);
  EXPECT_EQ(record.each_server->in, workers.out / 2);
  EXPECT_EQ(record.each_server->out, workers.in / 2);
  EXPECT_GT(workers.in, workers.out);  // weights are sent whole
  const nlohmann::json written = this->record("apart", "simulation");
  EXPECT_EQ(written["each_server"]["bytes_in"], record.each_server->in);
  EXPECT_EQ(written["workers"][2]["bytes_out"], record.workers[2].link.out);
}

TEST_F(VirtualRunTest, WhoWaitsForNobodyIsNotHeldUpByAStraggler) {
  VirtualCluster synchronous{.link = {1e-6, 1e12}, .stragglers = {{.worker = 1, .factor = 4}}};
  VirtualCluster bounded = synchronous, eventual = synchronous;
  bounded.rules = {.delay = 2, .pushes = 1};
  eventual.rules = {.delay = kNoBound, .pushes = 1};
  const VirtualOutcome s = simulated("s", 4, synchronous).virtual_run, b = simulated("b", 4, bounded).virtual_run,
                       e = simulated("e", 4, eventual).virtual_run;
  EXPECT_GT(s.seconds, b.seconds);
  EXPECT_GT(b.seconds, 1.5 * e.seconds);
  const auto idle = [](const VirtualOutcome& run) {
    const SimulationRecord::SimulatedWorker& fast = run.record.workers.front();
    return 1 - fast.computing - fast.on_the_way;
  };
  EXPECT_GT(idle(s), 0.6);
  EXPECT_LT(idle(e), 0.15);
  EXPECT_EQ(s.record.staleness.size(), 1u);
  EXPECT_GT(e.record.staleness.back().first, 6);
  EXPECT_EQ(s.record.updates, 20);
  EXPECT_EQ(e.record.updates, 80);
}

// In virtual time the order of pushes is the same in every run. Without updates the last losses are 0.98 of the first.
TEST_F(VirtualRunTest, WithStaleGradientsItLearnsAllTheSame) {
  const Overrides plain{{"optimizer.momentum", "0"}, {"optimizer.learning_rate", "0.05"}, {"schedule.epochs", "80"}};
  for (const int64_t delay : {int64_t{2}, kNoBound}) {
    const VirtualCluster cluster{.rules = {.delay = delay, .pushes = 1}, .stragglers = {{.worker = 1, .factor = 4}}};
    const std::string name = concat("delay", delay);
    simulated(name, 3, cluster, plain);
    double first = 0, last = 0;
    for (const auto& [step, loss] : losses(path(name)))
      first += step <= 20 ? loss / 20 : 0, last += step > 300 ? loss / 100 : 0;
    EXPECT_LT(last, 0.95 * first) << delay;
  }
}

TEST_F(VirtualRunTest, BackupWorkersDropTheSlowest) {
  VirtualCluster cluster{.rules = {.backup = 1}, .link = {1e-6, 1e12}, .stragglers = {{.worker = 1, .factor = 9}}};
  const VirtualOutcome run = simulated("backup", 4, cluster).virtual_run;
  EXPECT_EQ(run.record.updates, 20);
  EXPECT_GE(run.record.dropped, 1);
  EXPECT_LT(run.record.workers[1].tasks, 5);
}

TEST_F(VirtualRunTest, AWarmStartIsSynchronousUntilThen) {
  VirtualCluster cluster = kAsynchronous;
  cluster.rules_from = 1;
  const VirtualOutcome run = simulated("warm", 2, cluster).virtual_run;
  trained("real", 2);
  for (int64_t step = 1; step <= 5; ++step) EXPECT_EQ(losses(path("warm"))[step], losses(path("real"))[step]) << step;
  EXPECT_NE(losses(path("warm"))[8], losses(path("real"))[8]);
  EXPECT_EQ(run.record.updates, 5 + 15 * 2);
}

// Gradients that arrive one by one change the weights by their share of the rate. If all use the same weights, plain
// SGD gives dp's result.
TEST_F(VirtualRunTest, SharesOfAStepAddUpToIt) {
  const Overrides plain{{"optimizer.momentum", "0"}, {"optimizer.decay", "0"}, {"schedule.max_steps", "1"}};
  VirtualCluster each{.rules = {.delay = 0, .pushes = 1}, .servers = 1000};
  const Evaluation one_by_one = simulated("each", 4, each, plain).virtual_run.evaluation;
  const Evaluation together = simulated("all", 4, {}, plain).virtual_run.evaluation;
  EXPECT_NEAR(one_by_one.loss, together.loss, 1e-6);
  VirtualCluster full = each;
  full.full_rate = true;
  simulated("full", 4, full, plain);
  EXPECT_NE(weights("full"), weights("each"));
}

TEST_F(VirtualRunTest, StaleGradientsCountLessWhereThatIsAsked) {
  VirtualCluster cluster = kAsynchronous;
  simulated("as they are", 4, cluster);
  cluster.rate_by_staleness = true;
  simulated("by staleness", 4, cluster);
  EXPECT_NE(weights("as they are"), weights("by staleness"));
  cluster = {};
  cluster.rate_by_staleness = true;
  simulated("fresh", 2, cluster);
  simulated("synchronous", 2, {});
  EXPECT_EQ(weights("fresh"), weights("synchronous"));
}

// A push for every second task, with the sum of two gradients; between pulls workers update locally.
TEST_F(VirtualRunTest, DownpourPushesAndPullsOnceInSeveralTasks) {
  VirtualCluster cluster{.rules = {.delay = kNoBound, .pushes = 1}};
  const SimulationRecord each = simulated("each", 2, cluster).virtual_run.record;
  cluster.push_every = 2;
  const SimulationRecord second = simulated("second", 2, cluster).virtual_run.record;
  EXPECT_EQ(each.updates, 40);
  EXPECT_EQ(second.updates, 20);
  EXPECT_NEAR(static_cast<double>(second.bytes_to_servers), static_cast<double>(each.bytes_to_servers) / 2,
              0.11 * static_cast<double>(each.bytes_to_servers));
  EXPECT_GE(second.bytes_to_workers, second.bytes_to_servers);  // a pull sends changed weights
  cluster.pull_every = 4;
  const SimulationRecord fourth = simulated("fourth", 2, cluster).virtual_run.record;
  EXPECT_LT(3 * fourth.bytes_to_workers, each.bytes_to_workers + fourth.bytes_to_workers);
  EXPECT_NE(weights("fourth"), weights("second"));
}

// Between pulls a worker with plain descent reaches the same weights as the server after all pushes: it applies the sum
// of its gradients. The gradient of the last step of an epoch has fewer rows, and biases have a rate of their own.
TEST_F(VirtualRunTest, OneWorkerByItselfLearnsWhatTheServerLearns) {
  const Overrides plain{{"optimizer.momentum", "0"},
                        {"optimizer.decay", "0"},
                        {"schedule.max_steps", "5"},
                        {"schedule.biases", "{ type = 'steps', until = [2], factors = [8, 1] }"}};
  VirtualCluster cluster{.rules = {.delay = kNoBound, .pushes = 1}};
  const Evaluation each = simulated("each", 1, cluster, plain).virtual_run.evaluation;
  cluster.push_every = 5;
  const Evaluation without_moving = simulated("of one", 1, cluster, plain).virtual_run.evaluation;
  cluster.pull_every = 5;
  const VirtualOutcome moving = simulated("fifth", 1, cluster, plain).virtual_run;
  EXPECT_EQ(moving.record.updates, 1);
  EXPECT_NEAR(moving.evaluation.loss, each.loss, 1e-5);
  EXPECT_GT(std::fabs(without_moving.loss - each.loss), 1e-4);
}

TEST_F(VirtualRunTest, FiltersSendFewerBytesAndItLearnsAllTheSame) {
  VirtualCluster cluster{.link = {1e-4, 1e6}};
  const VirtualOutcome whole = simulated("whole", 2, cluster).virtual_run;
  for (const auto& [words, least, most] : {std::tuple(std::vector<std::string>{"bf16"}, 1.99, 2.01),
                                           {{"fix8"}, 3.5, 4.01},
                                           {{"top:0.1", "fix8"}, 10.0, 25.0},
                                           {{"skip:0.5"}, 1.8, 2.0}}) {
    cluster.filters = filters_from(words);
    const std::string name = cluster.filters.text();
    const VirtualOutcome run = simulated(name, 2, cluster).virtual_run;
    const double fewer =
        static_cast<double>(whole.record.bytes_to_servers) / static_cast<double>(run.record.bytes_to_servers);
    EXPECT_THAT(fewer, ::testing::AllOf(::testing::Ge(least), ::testing::Le(most))) << name;
    EXPECT_EQ(run.record.bytes_to_workers, whole.record.bytes_to_workers) << name;
    EXPECT_LT(run.seconds, whole.seconds) << name;
    EXPECT_TRUE(std::isfinite(run.evaluation.loss)) << name;
  }
}

// The weights are bit-identical to a parameter server of threads, which filters, packs and unpacks its messages.
TEST_F(VirtualRunTest, FiltersDoWhatTheyDoInEarnest) {
  const Overrides penalty =
      merged(with_optimizer("proximal"), {{"optimizer.learning_rate", "0.05"}, {"optimizer.l1", "0.2"}});
  for (const char* words :
       {"bf16", "fp16", "fix8", "coin16", "top:0.1', 'fix8", "skip:0.5', 'coin8", "significant:1", "kkt:0.99"}) {
    SCOPED_TRACE(words);
    Overrides filters{{"ps.filters", concat("['", words, "']")}, {"schedule.max_steps", "8"}};
    if (std::string(words).starts_with("kkt")) filters = merged(filters, penalty);
    trained("real", 3, merged(filters, {{"parallel.strategy", "ps"}}));
    VirtualCluster cluster;
    cluster.filters = small_settings(kSmallRecipe, of_workers(3, filters)).parallel.options.server.filters;
    simulated("virtual", 3, cluster, filters);
    EXPECT_EQ(weights("real"), weights("virtual"));
    EXPECT_EQ(read_file(optimizer_of("real")), read_file(optimizer_of("virtual")));
    std::filesystem::remove_all(path("real"));
    std::filesystem::remove_all(path("virtual"));
  }
}

// Delayed block proximal gradient: a task concerns one layer, and only its data is sent.
TEST_F(VirtualRunTest, ABlockIsAllThatATaskMoves) {
  const Overrides proximal = merged(with_optimizer("proximal"), {{"data.batch", "20"}});  // 100 images
  const auto changed = [&](BlockOrder order, int64_t steps) {
    const std::string tag = concat(static_cast<int>(order), "-", steps);
    VirtualCluster cluster{.blocks = order};
    const Overrides until = merged(proximal, {{"schedule.max_steps", std::to_string(steps)}});
    return simulated(tag, 2, cluster, until).virtual_run.record;
  };
  const SimulationRecord whole = simulated("whole", 2, {}, proximal).virtual_run.record;
  const int64_t of_all = whole.bytes_to_servers / 20;
  int64_t to_servers = 0;
  std::set<int64_t> sizes;
  const int64_t layers = 5;  // number of trained layers
  for (int64_t steps = 1; steps <= layers; ++steps) {
    const SimulationRecord record = changed(BlockOrder::kGiven, steps);
    sizes.insert(record.bytes_to_servers - to_servers);
    to_servers = record.bytes_to_servers;
    EXPECT_LT(to_servers, steps == layers ? of_all + 1 : of_all) << steps;
  }
  EXPECT_EQ(to_servers, of_all);  // each layer once
  EXPECT_EQ(std::ssize(sizes), layers);
  const SimulationRecord random = changed(BlockOrder::kRandom, layers);
  EXPECT_EQ(random.bytes_to_servers, of_all);
  // The first pull sends all weights, later ones the weights that the last update changed.
  EXPECT_GT(random.bytes_to_workers, of_all);
  EXPECT_LT(random.bytes_to_workers, 2 * of_all);
}

TEST_F(VirtualRunTest, AnL1PenaltyIsWrittenDownWithItsZeros) {
  const Overrides penalty =
      merged(with_optimizer("proximal"), {{"optimizer.learning_rate", "0.05"}, {"optimizer.l1", "0.2"}});
  VirtualCluster cluster{.rules = {.delay = 2}, .blocks = BlockOrder::kRandom, .rate_by_delay = 1};
  simulated("penalised", 2, cluster, penalty);
  const nlohmann::json eval = record("penalised", "eval");
  EXPECT_GT(eval["zeros"].get<double>(), 0.01);
  EXPECT_LT(eval["zeros"].get<double>(), 1);
  EXPECT_GT(eval["penalty"].get<double>(), 0);
  cluster.rate_by_delay = 0;
  simulated("faster", 2, cluster, penalty);
  EXPECT_GT(record("faster", "eval")["zeros"].get<double>(), eval["zeros"].get<double>());
  simulated("none", 2, {});
  EXPECT_FALSE(record("none", "eval").contains("zeros"));
}

// Weights that a penalty holds at 0 need not be sent: the same weights, with fewer bytes.
TEST_F(VirtualRunTest, AKktFilterOfOneWorkerChangesNothing) {
  const Overrides penalty =
      merged(with_optimizer("proximal"), {{"optimizer.learning_rate", "0.05"}, {"optimizer.l1", "0.2"}});
  const int64_t whole = simulated("whole", 1, {}, penalty).virtual_run.record.bytes_to_servers;
  VirtualCluster cluster{.filters = filters_from({"kkt:0.99"})};
  EXPECT_LT(simulated("filtered", 1, cluster, penalty).virtual_run.record.bytes_to_servers, whole);
  EXPECT_EQ(weights("filtered"), weights("whole"));
}

// Weights, averages and velocities of a real run, to rounding; the last step of an epoch is smaller, and evaluated.
TEST_F(VirtualRunTest, LocalSgdLearnsWhatItLearnsInEarnest) {
  const Settings settings = small_settings(kSmallRecipe, of_workers(3));
  const int64_t bytes_of_dp = 20 * planned_step(settings, "dp", {}, *fixed(settings)).bytes;
  for (const char* from : {"0", "1"}) {
    const Overrides local{{"parallel.average_every", "3"}, {"parallel.average_from", from}};
    const std::string real = concat("real", from), virtual_run = concat("virtual", from);
    const TrainOutcome earnest = trained(real, 3, local);
    SimulateOptions options;
    options.out = path(virtual_run);
    options.strategy = "dp";
    options.compute = fixed;
    const VirtualOutcome run = simulate(small_settings(kSmallRecipe, of_workers(3, local)), options).virtual_run;
    EXPECT_NEAR(run.evaluation.loss, earnest.evaluation.loss, 1e-4) << from;
    const auto wanted = losses(path(real)), found = losses(path(virtual_run));
    ASSERT_EQ(wanted.size(), found.size());
    for (const auto& [step, loss] : wanted) EXPECT_NEAR(loss, found.at(step), 1e-5) << from << ", step " << step;
    EXPECT_LT(run.record.bytes_between_workers, bytes_of_dp) << from;
  }
}

// The losses of dp, and the planner's time with the slowest worker in it.
TEST_F(VirtualRunTest, AStrategyOfThePlannerTakesItsStepTimes) {
  trained("real", 2);
  for (const char* strategy : {"dp", "dp-star", "owt-a", "owt-d", "pipeline"}) {
    SimulateOptions options;
    options.out = path(strategy);
    options.strategy = strategy;
    options.compute = fixed;
    options.cluster.stragglers = {{.worker = 1, .factor = 3}};
    const Settings settings = small_settings(kSmallRecipe, of_workers(2));
    const VirtualOutcome run = simulate(settings, options).virtual_run;
    EXPECT_EQ(losses(path(strategy)), losses(path("real"))) << strategy;
    const PlannedStep step = planned_step(settings, strategy, options.cluster.link, *fixed(settings));
    EXPECT_NEAR(run.seconds, 20 * (3 * step.compute_s + step.exposed_s), 1e-9) << strategy;
    EXPECT_EQ(run.record.bytes_between_workers, 20 * step.bytes) << strategy;
    EXPECT_GT(step.compute_s, 0) << strategy;
    EXPECT_NEAR(run.record.workers[1].computing, 3 * run.record.workers[0].computing, 1e-9) << strategy;
  }
  const Settings settings = small_settings(kSmallRecipe, of_workers(2));
  EXPECT_GT(planned_step(settings, "dp", {1e-3, 1e6}, *fixed(settings)).exposed_s, 0);
}

TEST_F(VirtualRunTest, WhatLearnsOtherwiseThanDpHasNoStepTimesHere) {
  const auto refused = [](const std::string& strategy, const Overrides& more, const std::string& why) {
    const Settings settings = small_settings(kSmallRecipe, of_workers(2, more));
    EXPECT_THAT(message_of([&] { planned_step(settings, strategy, {}, *fixed(settings)); }), HasSubstr(why));
  };
  refused("owt-c", {{"parallel.dense_update", "round"}}, "set it to \"step\"");
  const Overrides without_flush{{"pipeline.schedule", "pipedream"}};
  refused("pipeline", without_flush, "without a flush");
  const Settings settings = small_settings(kSmallRecipe, of_workers(2, without_flush));
  EXPECT_NO_THROW(planned_step(settings, "owt-c", {}, *fixed(settings)));  // has no pipeline
}

// Waiting times and sent bytes do not depend on whether gradients are computed.
TEST_F(VirtualRunTest, TimesAloneAreThoseOfARunThatLearns) {
  const std::vector<Straggler> late{{.worker = 1, .factor = 3}, {.share = 0.3, .factor = 2}};
  const Link slow{1e-4, 1e6};
  const ConsistencyRules free{.delay = kNoBound, .pushes = 1};
  const struct {
    std::string name;
    VirtualCluster cluster;
    std::string strategy{};
    Overrides more{};
  } cases[] = {
      {"synchronous", {.servers = 2, .link = slow, .stragglers = late}},
      {"delay", {.rules = {.delay = 2, .pushes = 1}, .link = slow, .stragglers = late}},
      {"free", {.rules = free, .servers = kOnWorkers, .link = slow, .message_work = 1e-6, .stragglers = late}},
      {"backup", {.rules = {.backup = 1}, .link = slow, .stragglers = late}},
      {"downpour", {.rules = free, .pull_every = 3, .push_every = 2, .link = slow, .stragglers = late}},
      {"top", {.filters = filters_from({"top:0.1", "fix8"}), .link = slow, .stragglers = late}},
      {"blocks",
       {.rules = {.delay = 2}, .blocks = BlockOrder::kRandom, .link = slow, .stragglers = late},
       "",
       with_optimizer("proximal")},
      {"owt-d", {.link = slow, .stragglers = late}, "owt-d"},
      {"local", {.link = slow, .stragglers = late}, "dp", {{"parallel.average_every", "3"}}},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.name);
    SimulateOptions options;
    options.cluster = each.cluster;
    options.strategy = each.strategy;
    options.compute = fixed;
    options.out = path(each.name);
    // Every step of an epoch has all its rows.
    const Overrides steps =
        merged(each.more, {{"data.batch", "24"}, {"data.train_images", "96"}, {"schedule.max_steps", "11"}});
    const Settings settings = small_settings(kSmallRecipe, of_workers(3, steps));
    const VirtualOutcome learning = simulate(settings, options).virtual_run;
    options.cluster.times_only = true;
    options.out = path(each.name + "-times");
    const VirtualOutcome times = simulate(settings, options).virtual_run;
    EXPECT_EQ(times.seconds, learning.seconds);
    EXPECT_EQ(times.record.step, 11);
    EXPECT_EQ(times.record.updates, learning.record.updates);
    EXPECT_EQ(times.record.staleness, learning.record.staleness);
    EXPECT_EQ(times.record.bytes_to_servers, learning.record.bytes_to_servers);
    EXPECT_EQ(times.record.bytes_to_workers, learning.record.bytes_to_workers);
    EXPECT_EQ(times.record.bytes_between_workers, learning.record.bytes_between_workers);
    for (size_t w = 0; w < 3; ++w) EXPECT_EQ(times.record.workers[w].computing, learning.record.workers[w].computing);
    EXPECT_EQ(seconds_of_steps(each.name + "-times"), seconds_of_steps(each.name));
    EXPECT_FALSE(std::filesystem::exists(options.out + "/checkpoints"));
    EXPECT_TRUE(record(each.name + "-times", "train")["loss"].is_null());
    EXPECT_FALSE(record(each.name, "train")["loss"].is_null());
  }
}

TEST_F(VirtualRunTest, TimesAloneKnowNeitherEpochsNorValuesOfGradients) {
  const VirtualOutcome times = simulated("times", 2, {.times_only = true}, {{"schedule.epochs", "0.01"}}).virtual_run;
  EXPECT_EQ(times.record.step, kTimedSteps);
  const VirtualCluster filtered{.times_only = true, .filters = filters_from({"significant:0.5"})};
  EXPECT_THAT(message_of([&] { simulated("refused", 2, filtered); }), HasSubstr("leave out --times-only"));
  const VirtualCluster warm{.times_only = true, .rules_from = 1};
  EXPECT_THAT(message_of([&] { simulated("refused", 2, warm); }), HasSubstr("the length of an epoch"));
}

TEST_F(VirtualRunTest, WorkersThatWouldWaitForeverAreRefused) {
  VirtualCluster cluster{.rules = {.delay = 1, .pushes = 1}, .push_every = 3};
  EXPECT_THAT(message_of([&] { simulated("refused", 2, cluster); }), HasSubstr("give 2 or more, or inf"));
  cluster.rules.delay = 2;
  EXPECT_NO_THROW(simulated("goes on", 2, cluster));
  cluster.rules = {};
  EXPECT_THAT(message_of([&] { simulated("refused", 2, cluster); }), HasSubstr("no updates by task"));
}

TEST_F(VirtualRunTest, MetricsSayThatTheyAreSimulated) {
  simulated("a", 2, kAsynchronous);
  const nlohmann::json start = record("a", "start"), simulation = record("a", "simulation");
  EXPECT_EQ(start["facts"]["simulated"], "times are those of a model, not measured");
  EXPECT_THAT(start["facts"]["strategy"].get<std::string>(), HasSubstr("ps, unbounded delay"));
  ASSERT_EQ(simulation["workers"].size(), 2u);
  int64_t gradients = 0;
  for (const auto& [updates, count] : simulation["staleness"].items()) gradients += count.get<int64_t>();
  EXPECT_EQ(gradients, 40);
  EXPECT_EQ(record("a", "end")["state"], "finished");
  EXPECT_EQ(record("a", "end")["seconds"], simulation["seconds"]);
}

TEST_F(VirtualRunTest, WhatNoWorkerCanKnowIsRefused) {
  const auto refused = [&](const Overrides& more, const std::string& why) {
    EXPECT_THAT(message_of([&] { simulated("refused", 2, {}, more); }), HasSubstr(why)) << why;
  };
  refused({{"optimizer.clip", "1"}}, "norms of all gradients");
  refused(with_optimizer("muon"), "whole gradient of a matrix");
  refused({{"run.canonical", "true"}}, "leave run.canonical out");
  refused({{"optimizer.ema", "0.9"}}, "optimizer.ema");
  refused({{"parallel.average_every", "4"}}, "local SGD");
  refused({{"parallel.wire", "bf16"}}, "parallel.wire");
  EXPECT_THAT(message_of([&] { simulated("refused", 2, {.filters = filters_from({"kkt:1"})}); }),
              HasSubstr("there is no penalty"));
  EXPECT_THAT(
      message_of([&] { simulated("refused", 2, {.rules = {.delay = 1, .pushes = 1}, .blocks = BlockOrder::kGiven}); }),
      HasSubstr("update of a block"));
  EXPECT_THAT(message_of([&] { simulated("refused", 2, {.rules = {.delay = kNoBound}, .rate_by_delay = 1}); }),
              HasSubstr("needs a bounded delay"));
  VirtualCluster cluster{.stragglers = {{.worker = 2, .factor = 2}}};
  EXPECT_THAT(message_of([&] { simulated("refused", 2, cluster); }), HasSubstr("the workers are 0 to 1"));
}

}  // namespace
}  // namespace owt::virtual_run_test
