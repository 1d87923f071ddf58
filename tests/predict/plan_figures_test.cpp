// Figures of plans and predictions against plain formulas, over nets, strategies, ranks and rows, even and uneven.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <sstream>

#include "src/core/cpu_bf16.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_table.h"
#include "src/plan/step_result.h"
#include "src/predict/memory_need.h"
#include "src/predict/step_price.h"
#include "src/server/parameter_server.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "tests/support/fixed_compute.h"
#include "tests/support/plans.h"
#include "tests/support/strategies.h"

namespace owt::plan_figures_test {
namespace {

// A net with a normalisation; `classes` decides whether the loss works on shards of the logits.
std::string wide_net(int classes) {
  return model_text("[2, 4, 4]", classes,
                    concat(R"(
  { name = "conv1", type = "conv", out = 4, kernel = 3, pad = 1 },
  { name = "bn1", type = "batch_norm" },
  { name = "relu0", type = "relu" },
  { name = "conv2", type = "conv", out = 2, kernel = 3, pad = 1, bias = false },
  { name = "fc1", type = "dense", out = 22 },
  { name = "relu1", type = "relu" },
  { name = "fc2", type = "dense", out = 67 },
  { name = "fc3", type = "dense", out = )",
                           classes, " }"));
}

// Its dense layers become narrower, so that owt-d splits them by inputs; a block in a block needs separate memory.
const std::string kNarrowing = model_text("[3, 5, 4]", 7, R"(
  { name = "block", type = "residual", shortcut = [{ name = "s", type = "conv", out = 5, kernel = 1 }], body = [
    { name = "a", type = "conv", out = 6, kernel = 1, bias = false },
    { name = "deep", type = "residual", body = [{ name = "b", type = "conv", out = 6, kernel = 3, pad = 1 }] },
    { name = "r", type = "relu" },
    { name = "c", type = "conv", out = 5, kernel = 1 }] },
  { name = "pool", type = "max_pool", kernel = 2, stride = 2 },
  { name = "fc1", type = "dense", out = 9 },
  { name = "relu", type = "relu" },
  { name = "drop", type = "dropout", rate = 0.5 },
  { name = "fc2", type = "dense", out = 8, bias = false },
  { name = "fc3", type = "dense", out = 7 })");

// Its front part is not trained; the images are the largest activations.
const std::string kNothingLearnsInFront = model_text("[3, 6, 6]", 5, R"(
  { name = "pool", type = "avg_pool", kernel = 2, stride = 2 },
  { name = "drop", type = "dropout", rate = 0.1 },
  { name = "fc1", type = "dense", out = 41 },
  { name = "fc2", type = "dense", out = 5 })");

int64_t up(int64_t n, int64_t parts) { return (n + parts - 1) / parts; }
int64_t share(int64_t n, int64_t parts, int64_t i) { return n / parts + (i < n % parts ? 1 : 0); }
int64_t sent(int passes, int64_t bytes, int64_t ranks) { return passes * bytes * (ranks - 1) / ranks; }

// The reference for a plan, computed from the shapes of its layers. Its buckets hold one layer each.
struct Reference {
  // The reference for one model group; the first group has the most rows.
  explicit Reference(const Plan& p, int64_t of_group = 0)
      : plan(p),
        q(p.request),
        group(of_group),
        mp(facts_of(q.strategy).shares_rows),
        zero(q.ranks > 1 && is_zero()),
        served(q.ranks > 1 && is_served()),
        star(q.ranks > 1 && is_star()) {
    const bool splits = q.strategy != Strategy::kDataParallel && !is_zero() && !is_star();
    m = splits ? (q.model_ranks > 0 ? q.model_ranks : q.ranks) : 1;
    count = std::ssize(plan.layers);
    for (int64_t i = 0; i < count; ++i)
      if (at(i).type == "residual") first = i + 1;  // computed by all ranks, with the layers before it
    while (m > 1 && first < count && !splits_up(first)) ++first;
    if (m == 1) first = count;
    most = mp ? share(q.step_rows, q.ranks / m, group) : share(q.step_rows, q.ranks, group * m);
    fill_rounds();
    learns = runs_backward(first - 1);
  }
  // Whether a layer in it or before it is trained.
  bool runs_backward(int64_t layer) const {
    bool any = false;
    for (int64_t i = 0; i <= layer; ++i) any = any || !at(i).params.empty();
    return any;
  }

  bool is_d() const { return q.strategy == Strategy::kOwtD; }
  // Servers have equally large shards, and the same bytes to and from them.
  bool is_zero() const { return q.strategy == Strategy::kDataParallelZero || is_served(); }
  bool is_served() const { return q.strategy == Strategy::kParameterServer; }
  bool is_star() const { return q.strategy == Strategy::kDataParallelStar; }
  const LayerPlan& at(int64_t i) const { return plan.layer(i); }
  int64_t in(int64_t i) const { return at(i).in.elements(); }
  int64_t out(int64_t i) const { return at(i).out.elements(); }
  bool dense(int64_t i) const { return at(i).type == "dense"; }
  bool splits_up(int64_t i) const {
    return dense(i) || (q.strategy == Strategy::kModelParallel && at(i).type == "conv");
  }
  int64_t pixels(int64_t i) const { return at(i).out.rank() == 3 ? at(i).out[0] * at(i).out[1] : 1; }
  int64_t columns(int64_t i) const { return out(i) / pixels(i); }
  int64_t part_of_out(int64_t i) const { return pixels(i) * up(columns(i), m); }
  bool by_inputs(int64_t i) const {
    const bool less = q.split == DenseSplit::kLess || (q.split == DenseSplit::kOfStrategy && is_d());
    const bool in_rounds = q.strategy == Strategy::kOwtB || q.strategy == Strategy::kOwtC;
    if ((!less && q.split != DenseSplit::kRows) || i < first || !dense(i) || (in_rounds && i == first)) return false;
    if (i > first && pixels(i - 1) > 1) return false;
    if (!less) return true;
    if (mp && i == first) return learns && 2 * out(i) < in(i);
    return i == first ? in(i) / m + out(i) < in(i) : out(i) < in(i);
  }

  // Rows of the ranks, or of groups that share rows.
  std::string rows_text() const {
    const int64_t parts = mp ? q.ranks / m : q.ranks;
    if (q.step_rows % parts == 0) return std::to_string(q.step_rows / parts);
    std::string text;
    for (int64_t i = 0; i < parts; ++i) text += concat(i > 0 ? " + " : "", share(q.step_rows, parts, i));
    return text;
  }

  void fill_rounds() {
    const auto rows_of_rank = [&](int r) { return share(q.step_rows, q.ranks, group * m + r); };
    if (m == 1 || mp) {
      rounds = {most}, longest = {most};
    } else if (q.strategy == Strategy::kOwtA || q.strategy == Strategy::kOwtD) {
      rounds = {0}, longest = {most};
      for (int r = 0; r < m; ++r) rounds[0] += rows_of_rank(r);
    } else {
      for (int round = 0; round < m; ++round) {
        rounds.push_back(0), longest.push_back(0);
        for (int r = 0; r < m; ++r) {
          const int64_t rows = q.strategy == Strategy::kOwtC ? share(rows_of_rank(r), m, round)
                               : r == round                  ? rows_of_rank(r)
                                                             : 0;
          rounds.back() += rows;
          longest.back() = std::max(longest.back(), rows);
        }
      }
    }
  }

  int64_t param_elements(int64_t i, const Shape& param) const {
    if (i < first) return param.elements();
    if (by_inputs(i)) return param.rank() == 1 ? param.elements() : out(i) * up(in(i), m);
    return up(columns(i), m) * param.elements() / columns(i);
  }
  int64_t weights(int64_t i) const {
    int64_t elements = 0;
    for (const Shape& param : at(i).params) elements += param_elements(i, param);
    return elements;
  }
  int64_t weights() const {
    int64_t elements = 0;
    for (int64_t i = 0; i < count; ++i) elements += weights(i);
    return elements;
  }

  int64_t gradient_size() const { return q.bf16_transport && q.ranks > 1 ? 2 : 4; }
  // The buckets of a layer, as elements and their bytes each.
  std::vector<std::pair<int64_t, int64_t>> buckets(int64_t i) const {
    int64_t trained = 0, averages = 0;
    for (size_t p = 0; p < at(i).params.size(); ++p)
      (at(i).roles[p] == ParamRole::kAverage ? averages : trained) += up(param_elements(i, at(i).params[p]), 8) * 8;
    std::vector<std::pair<int64_t, int64_t>> all;
    const auto add = [&](int64_t elements, int64_t size) {
      if (zero) elements = up(elements, 8 * q.ranks) * 8 * q.ranks;
      if (elements > 0) all.emplace_back(elements, size);
    };
    if (gradient_size() == 4) return add(trained + averages, 4), all;
    add(trained, 2), add(averages, 4);
    return all;
  }

  int64_t boundary_bytes(size_t round, int64_t size) const {
    const int64_t rows = rounds[round], ways = learns ? 2 : 1;
    if (mp && by_inputs(first)) return learns ? sent(1, m * up(in(first), m) * most * size, m) : 0;
    if (mp) return learns ? sent(2, most * in(first)*size, m) : 0;
    if (q.strategy == Strategy::kOwtB) return ways * sent(1, rows * in(first)*size, m);
    return ways * sent(1, longest[round] * m * (by_inputs(first) ? up(in(first), m) : in(first)) * size, m);
  }
  int64_t gather_bytes(int64_t rows, int64_t size) const {
    int64_t bytes = 0;
    const int64_t logits = up(out(count - 1), m) * size, statistics = 10 * 4;  // per row and rank
    for (int64_t i = first; i < count; ++i) {
      const int ways = i + 1 == count && logits <= statistics ? 1 : 2;  // the whole gradient is there
      if (by_inputs(i)) bytes += ways * sent(1, m * up(out(i), m) * rows * size, m);
      if (gathers(i)) bytes += 2 * sent(1, m * part_of_out(i - 1) * rows * size, m);
    }
    return bytes + sent(1, m * rows * std::min(logits, statistics), m);
  }
  int64_t update_bytes() const {
    int64_t bytes = 0;
    const int64_t replicas = q.ranks / m, summed = mp && m > 1 ? replicas : q.ranks,
                  updates = q.dense_update == DenseUpdate::kRound ? std::ssize(rounds) : 1;
    for (int64_t i = 0; i < count; ++i)
      for (const auto& [elements, size] : buckets(i)) {
        if (i >= first)
          bytes += updates * sent(2, elements * size, replicas);
        else if (zero || star)
          bytes += sent(1, elements * size, q.ranks) + sent(1, elements * 4, q.ranks);
        else
          bytes += sent(2, elements * size, summed) + (mp ? sent(1, elements * size, m) : 0);
      }
    return bytes;
  }
  // The larger of bytes sent and received by rank 0 of a star; for others the bytes sent by each rank.
  int64_t busiest_bytes() const {
    if (!star) return bytes_of_group();
    int64_t most = 0;  // weights are not rounded
    for (int64_t i = 0; i < count; ++i)
      for (const auto& [elements, size] : buckets(i)) most += (q.ranks - 1) * elements * 4;
    return most + result_bytes();
  }
  int64_t result_bytes() const {
    return served ? (q.ranks - 1) * kPushHeaderBytes : sent(2, kStepResultBytes, q.ranks);
  }
  int64_t bytes() const {
    int64_t all = 0;
    for (int64_t each = 0; each < q.ranks / m; ++each) all += Reference(plan, each).bytes_of_group();
    return all / (q.ranks / m);
  }
  int64_t bytes_of_group() const {
    const int64_t size = std::min<int64_t>(gradient_size(), q.on.precision == Precision::kBf16 ? 2 : 4);
    int64_t all = update_bytes() + result_bytes();
    if (m == 1) return all;
    if (!mp) all += sent(1, most * m * 4, m);  // labels
    for (size_t round = 0; round < rounds.size(); ++round)
      all += boundary_bytes(round, size) + gather_bytes(rounds[round], size);
    return all;
  }

  static int64_t inner(const LayerPlan& layer) {
    int64_t kept = 0;
    for (const LayerPlan& each : layer.inner) kept += inner(each) + (each.in_place ? 0 : each.out.elements());
    return kept;
  }
  static int64_t scratch(const LayerPlan& layer) {
    int64_t widest = 0, deepest = 0;
    for (const LayerPlan& each : layer.inner) {
      widest = std::max({widest, each.in.elements(), each.out.elements()});
      deepest = std::max(deepest, scratch(each));
    }
    return layer.inner.empty() ? 0 : layer.in.elements() + layer.out.elements() + 2 * widest + deepest;
  }
  int64_t kept(int64_t i) const { return i < first || by_inputs(i) ? out(i) : part_of_out(i); }
  // Memory per row of layers [begin, end) between two moves: outputs, two gradients of the largest size before the last
  // output, and what a composite layer needs.
  int64_t held(int64_t begin, int64_t end) const {
    int64_t outputs = 0, largest = 0, deepest = 0;
    for (int64_t i = begin; i < end; ++i) {
      outputs += (at(i).in_place && i > begin ? 0 : kept(i)) + inner(at(i));
      if (i != end - 1) largest = std::max(largest, kept(i));
      deepest = std::max(deepest, scratch(at(i)));
    }
    return outputs + 2 * largest + deepest;
  }
  bool gathers(int64_t i) const { return splits_up(i) && !by_inputs(i) && i > first; }
  // Columns before and after an all-gather or reduce-scatter: outputs of a layer, or the columns of all ranks at the
  // boundary.
  int64_t moved_columns(int64_t n) const { return n + up(n, m) * (m + (n % m == 0 ? 1 : 2)); }
  int64_t moved(int64_t i) const { return pixels(i) * moved_columns(columns(i)); }
  int64_t home() const {
    if (mp && by_inputs(first)) return up(in(first), m) + moved_columns(in(first));
    return mp && !learns ? 0 : in(first);
  }

  // What the split layers hold for a row of a round.
  struct Behind {
    int64_t held = 0, moved = 0;
  };
  Behind behind() const {
    Behind all;
    for (int64_t begin = first, end = first; begin < count; begin = end) {
      do ++end;
      while (end < count && !gathers(end) && !by_inputs(end - 1));
      all.held += held(begin, end);
      if (gathers(begin)) all.moved += moved(begin - 1) + in(begin);
      if (begin > first && !gathers(begin)) all.moved += up(out(begin - 1), m);
      if (by_inputs(end - 1)) all.moved += moved(end - 1);
    }
    return all;
  }
  int64_t at_boundary() const {
    if (mp) return 0;
    const int64_t rows = *std::max_element(rounds.begin(), rounds.end());
    int64_t padded = 0;
    for (size_t r = 0; r < rounds.size(); ++r) padded = std::max(padded, longest[r] * m == rounds[r] ? 0 : longest[r]);
    if (by_inputs(first)) return up(in(first), m) * (3 * m * most + (padded > 0 || in(first) % m > 0 ? 2 : 1) * rows);
    if (q.strategy == Strategy::kOwtB) padded = 0;
    return std::min<int64_t>(std::ssize(rounds), 2) * in(first) * (2 * rows + (m + 1) * padded);
  }
  double row_bytes() const {
    const int64_t size = q.on.precision == Precision::kBf16 ? 2 : 4, last = count - 1;
    const bool sharded = m > 1 && 10 * 4 < up(out(last), m) * std::min(gradient_size(), size);
    int64_t bytes = size * most * (in(0) + held(0, first));
    if (m > 1) bytes += size * (home() * most + at_boundary());
    if (m > 1 && !mp) bytes += 4 * ((m + 1) * most + *std::max_element(rounds.begin(), rounds.end()));
    if (m > 1) bytes += size * *std::max_element(rounds.begin(), rounds.end()) * behind().held;
    for (const int64_t rows : std::set<int64_t>(rounds.begin(), rounds.end())) {
      if (m > 1) bytes += size * rows * behind().moved;
      bytes += rows *
               (sharded ? size * up(out(last), m) + 4 * (m + 1) * 10 : size * (out(last) + (m > 1 ? moved(last) : 0)));
    }
    return static_cast<double>(bytes) / static_cast<double>(q.step_rows);
  }
  int64_t weight_bytes() const {
    int64_t velocities = 0;
    for (int64_t i = 0; !zero && i < count; ++i)
      for (size_t p = 0; p < at(i).params.size(); ++p)
        if (at(i).roles[p] == ParamRole::kTrained) velocities += 4 * param_elements(i, at(i).params[p]);
    for (int64_t i = 0; zero && i < count; ++i)
      for (const auto& [elements, size] : buckets(i)) velocities += elements / q.ranks * 4;
    return weights() * 4 + copy_bytes() + gradient_bytes() + velocities + received();
  }
  // On rank 0 of a star there is memory for every second bucket, as large as the largest of them; on a server for its
  // share of all of them, of every other rank.
  int64_t received() const {
    int64_t shares = 0;
    for (int64_t i = 0; served && i < count; ++i)
      for (const auto& [elements, size] : buckets(i)) shares += elements / q.ranks;
    if (!star) return (q.ranks - 1) * 4 * shares;
    std::vector<int64_t> most(2, 0);
    int64_t number = 0;
    for (int64_t i = count; i-- > 0;)
      for (const auto& [elements, size] : buckets(i)) {
        int64_t& slot = most[static_cast<size_t>(number++ % 2)];
        slot = std::max(slot, elements);
      }
    return (q.ranks - 1) * 4 * (most[0] + most[1]);
  }
  // In bf16 on a GPU every parameter has a copy, on the CPU weights of dense layers do. Shared parameters: whole
  // buckets.
  int64_t copy_bytes() const {
    if (q.on.precision != Precision::kBf16) return 0;
    const bool whole_buckets = zero || star;
    int64_t elements = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (q.on.device == Device::kCpu && !(cpu_has_bf16() && dense(i))) continue;
      for (const auto& [in_bucket, size] : buckets(i)) elements += whole_buckets ? in_bucket : 0;
      for (const Shape& param : at(i).params)
        if (!whole_buckets && (q.on.device == Device::kCuda || param.rank() > 1)) elements += param_elements(i, param);
    }
    return 2 * elements;
  }
  // In bf16 on a GPU, weights of convolutions have bf16 gradients if nothing is added to them. Weights of dense layers
  // have no gradients in that case, nor on the CPU.
  int64_t gradient_bytes() const {
    const bool of_rounds = q.dense_update == DenseUpdate::kStep && std::ssize(rounds) > 1;
    int64_t bytes = 0;
    for (int64_t i = 0; i < count; ++i) {
      const bool sum = i < first ? q.ranks > 1 : q.ranks > m || of_rounds;
      for (const Shape& param : at(i).params) {
        const bool on_gpu = q.on.device == Device::kCuda, bf16 = q.on.precision == Precision::kBf16;
        if ((!on_gpu || bf16) && at(i).type == "dense" && !sum && param.rank() > 1) continue;
        const bool half = on_gpu && bf16 && !sum && param.rank() > 1;
        bytes += param_elements(i, param) * (half ? 2 : 4);
      }
    }
    return bytes;
  }

  double part(int64_t i) const {
    if (i < first) return 1;
    const int64_t whole = by_inputs(i) ? in(i) : columns(i);
    return static_cast<double>(up(whole, m)) / static_cast<double>(whole);
  }

  const Plan& plan;
  const PlanRequest& q;
  int64_t group;
  bool mp, zero, served, star, learns = false;
  int64_t m = 1, first = 0, count = 0, most = 0;
  std::vector<int64_t> rounds, longest;  // rows of each, and the most of a rank
};

// Calls check(plan, reference) for every case.
template <class Check>
void for_every_plan(const Check& check) {
  for (const std::string& net : {wide_net(5), wide_net(300), kNarrowing, kNothingLearnsInFront}) {
    const Model model = model_of(net);
    for (const Strategy strategy : strategies_without_stages())
      for (const auto& [ranks, model_ranks] : {std::pair(1, 0), {2, 0}, {3, 0}, {5, 0}, {8, 0}, {4, 2}, {6, 3}})
        for (const int64_t rows : {8, 13, 26})
          for (const auto& [second, split] : {std::pair(false, DenseSplit::kOfStrategy),
                                              {true, DenseSplit::kOfStrategy},
                                              {false, DenseSplit::kLess},
                                              {true, DenseSplit::kRows},
                                              {false, DenseSplit::kColumns}}) {
            PlanRequest request{.ranks = ranks, .strategy = strategy, .step_rows = rows, .bucket_bytes = 1};
            request.model_ranks = model_ranks;
            request.dense_update = second ? DenseUpdate::kRound : DenseUpdate::kStep;
            request.bf16_transport = second;
            request.split = split;
            if (second != (rows == 13)) request.on.precision = Precision::kBf16;
            const Plan plan = make_plan(model, request);
            SCOPED_TRACE(plan_table(plan));
            check(plan, Reference(plan));
            if (testing::Test::HasFailure()) return;  // one table says enough
          }
  }
}

TEST(PlanFigures, OfBytesAndWeightsFollowFromTheShapesOfTheLayers) {
  for_every_plan([](const Plan& plan, const Reference& expected) {
    EXPECT_EQ(bytes_per_step(plan), expected.bytes());
    EXPECT_EQ(busiest_link(plan), expected.busiest_bytes());
    EXPECT_EQ(weight_bytes_per_rank(plan), 4 * expected.weights());
    const int64_t rows = plan.request.step_rows;
    EXPECT_EQ(layer_rows(plan, 0, rows).total, expected.most);
    const LayerRows last = layer_rows(plan, expected.count - 1, rows);
    EXPECT_EQ(last.total, std::accumulate(expected.rounds.begin(), expected.rounds.end(), int64_t{0}));
    EXPECT_EQ(last.at_once, *std::max_element(expected.rounds.begin(), expected.rounds.end()));
  });
}

TEST(PlanFigures, OfMemoryFollowFromWhatIsKeptAndMoved) {
  for_every_plan([](const Plan& plan, const Reference& expected) {
    const MemoryNeed need = memory_need(plan);
    EXPECT_EQ(need.weight_bytes, expected.weight_bytes());
    EXPECT_NEAR(need.step_row_bytes, expected.row_bytes(), 1e-6);
    int64_t piece = 0;
    for (const LayerPlan& layer : plan.layers)
      for (const Shape& param : layer.params) piece = std::max(piece, param.elements());  // all are small
    EXPECT_EQ(need.piece_bytes, piece * 4 * 4);
    Plan on_gpu = plan;
    on_gpu.request.on.device = Device::kCuda;
    EXPECT_EQ(memory_need(on_gpu).piece_bytes, piece * 4);
    EXPECT_EQ(memory_need(on_gpu).weight_bytes, Reference(on_gpu).weight_bytes());
  });
}

TEST(PlanFigures, OfComputingAndUpdatingFollowFromRowsAndParts) {
  for_every_plan([](const Plan& plan, const Reference& expected) {
    std::vector<FixedCompute::Layer> layers;
    for (int64_t i = 0; i < expected.count; ++i) {
      const auto n = static_cast<double>(i);
      layers.push_back({1 + n, 20 + 3 * n * n, plan.layer(i).params.empty() ? 0 : 300 + 7 * n});
    }
    double computed = 5000, updated = 0;
    int rounds_with_rows = 0;
    for (const int64_t rows : expected.rounds) {
      computed += 0.5 * static_cast<double>(rows);
      rounds_with_rows += rows > 0 ? 1 : 0;
    }
    for (int64_t i = 0; i < expected.count; ++i) {
      const auto& [forward, backward, update] = layers[static_cast<size_t>(i)];
      if (i < expected.first) {
        computed += (forward + (expected.runs_backward(i) ? backward : 0)) * static_cast<double>(expected.most);
        updated += update / (expected.zero ? plan.ranks() : 1);
        continue;
      }
      for (const int64_t rows : expected.rounds)
        computed += (forward + backward) * static_cast<double>(rows) * expected.part(i);
      updated += update * expected.part(i) * (plan.request.dense_update == DenseUpdate::kRound ? rounds_with_rows : 1);
    }
    Network network;
    network.ranks_per_host = plan.ranks();
    network.local = {1e-3, 1e6};
    for (const bool overlaps : {false, true}) {
      network.overlaps = overlaps;
      const Prediction p = price_step(plan, network, FixedCompute(layers, 0.5, 5000));
      EXPECT_NEAR(p.compute_s, computed, 1e-6);
      EXPECT_NEAR(p.update_s, updated, 1e-6);
      EXPECT_EQ(p.split, expected.m > 1);
      EXPECT_EQ(p.model_ranks, expected.m);
      EXPECT_EQ(p.memory_bytes, memory_need(plan).bytes(plan.request.step_rows));
      EXPECT_LE(p.exposed_s, p.transfer_s + 1e-9);
      if (!overlaps) {
        EXPECT_NEAR(p.exposed_s, p.transfer_s, 1e-9);
      }
    }
  });
}

std::vector<std::string> words_in(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

std::string megabytes(int64_t bytes) {
  return bytes == 0 ? "-" : format("{:.{}f}", static_cast<double>(bytes) / 1e6, bytes < 100'000 ? 4 : 2);
}

std::string part_text(const Reference& expected, int64_t i) {
  const bool by_inputs = expected.by_inputs(i);
  const int64_t whole = by_inputs ? expected.in(i) : expected.columns(i), most = up(whole, expected.m),
                least = whole / expected.m;
  const std::string part = most == least ? format("{}", most) : format("{}-{}", least, most);
  return i < expected.first ? "whole" : format("{}{} of {}", by_inputs ? "in " : "", part, whole);
}

TEST(PlanFigures, OfTheTableAreThoseOfItsLayersAndTransfers) {
  for_every_plan([](const Plan& plan, const Reference& expected) {
    const std::vector<std::string> lines = split_lines(plan_table(plan));
    const PlanRequest& q = plan.request;
    EXPECT_EQ(
        lines[0],
        format("small on {} worker{} under {}, {} rows per step ({} per worker), {} round{}, dense update every {}",
               q.ranks, q.ranks > 1 ? "s" : "", name_of(q.strategy), q.step_rows, expected.rows_text(),
               expected.rounds.size(), expected.rounds.size() > 1 ? "s" : "",
               q.dense_update == DenseUpdate::kRound ? "round" : "step"));
    size_t line = 2;
    for (int64_t i = 0; i < expected.count; ++i, ++line) {
      if (i == expected.first) {
        EXPECT_EQ(lines[line++], "-- boundary --");
      }
      const LayerPlan& layer = plan.layer(i);
      const std::string layout = i >= expected.first             ? "feature"
                                 : expected.mp && expected.m > 1 ? "replicated"
                                                                 : "batch";
      std::vector<std::string> wanted{layer.name, layer.type, layer.out.str(), layout};
      for (const std::string& word : words_in(part_text(expected, i))) wanted.push_back(word);
      int64_t whole = 0;
      for (const Shape& param : layer.params) whole += 4 * param.elements();
      wanted.push_back(megabytes(whole));
      wanted.push_back(megabytes(4 * expected.weights(i)));
      wanted.push_back(format(
          "{:.3f}", (layer.flops_per_row + layer.backward_flops_per_row) * static_cast<double>(q.step_rows) / 1e9));
      EXPECT_EQ(words_in(lines[line]), wanted);
    }
    line += 2;  // an empty one and the transfers' heads
    for (const Transfer& t : plan.transfers) {
      const std::vector<std::string> found = words_in(lines[line++]);
      std::vector<std::string> wanted = words_in(t.name);
      for (const std::string& word :
           {std::string(name_of(t.collective)), std::string(name_of(t.from)), std::string("->"),
            std::string(name_of(t.to)), std::to_string(t.calls), std::to_string(t.bytes), megabytes(t.bytes)})
        wanted.push_back(word);
      EXPECT_EQ(found, wanted);
    }
    EXPECT_EQ(words_in(lines[line]),
              words_in(format("sent per worker{} {} {}",
                              expected.bytes() == expected.busiest_bytes() ? " and step" : ", mean", expected.bytes(),
                              megabytes(expected.bytes()))));
    EXPECT_EQ(words_in(lines[line + 1]), words_in(format("one way in the busiest link {} {}", expected.busiest_bytes(),
                                                         megabytes(expected.busiest_bytes()))));
  });
}

}  // namespace
}  // namespace owt::plan_figures_test
