#include "src/commands/measure_compute.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include "src/comm/on_host.h"
#include "src/comm/solo.h"
#include "src/report/layer_facts.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "src/train/made_up_batch.h"
#include "src/train/worker.h"

namespace owt {
namespace {

constexpr int kUntimedSteps = 2;  // these make primitives and choose algorithms

// The number of steps of one size to time: at least `fewest`, then until the seconds have passed, at most `most`.
struct HowLong {
  int64_t fewest, most;
  double seconds;
};
constexpr HowLong kForTimes{3, 9, 2};
// A rank that finished earlier would leave its cores to others, so all ranks run for the same time.
constexpr HowLong kForSpeeds{3, 10000, 1.5};
constexpr int kMeans = 9;

using SteadyClock = std::chrono::steady_clock;

PlanRequest alone(const Settings& settings, int64_t rows) {
  PlanRequest request;
  request.step_rows = rows;
  request.on = settings.compute();
  request.keeps_gradients = true;  // prices are for strategies whose ranks add up gradients
  return request;
}

Profiler time_alone(
    const Settings& settings, const Plan& plan, const HowLong& how_long,
    const std::function<void()>& wait_for_others = [] {}) {
  const auto solo = make_solo_communicator(plan.request.on.device);
  Worker worker(settings, plan, *solo);
  auto& [profiler, comm, model, sgd, step, teacher] = worker;
  model.initialize(settings.run.seed);
  step.prepare(plan.request.step_rows);
  const Batch batch = made_up_batch(settings.model, {0, plan.request.step_rows}, plan.request,
                                    step.wanted_images(plan.request.step_rows));
  constexpr Step::Rates kRates{1e-6, 1e-6};
  wait_for_others();
  const auto begin = SteadyClock::now();
  for (int64_t i = 0; i < kUntimedSteps + how_long.most; ++i) {
    const double passed = std::chrono::duration<double>(SteadyClock::now() - begin).count();
    if (i >= kUntimedSteps + how_long.fewest && passed > how_long.seconds) break;
    profiler.enable(i >= kUntimedSteps);
    profiler.begin_step();
    step.train(batch, i, kRates, false);
    profiler.end_step();
  }
  return std::move(profiler);
}

// Pointers to every measured number in the samples.
std::vector<double*> numbers(ComputeSamples& samples) {
  std::vector<double*> all;
  for (auto& layer : samples.layers)
    for (LayerSample& sample : layer)
      for (double* value : {&sample.forward_s, &sample.backward_s, &sample.update_s}) all.push_back(value);
  for (auto& [rows, seconds] : samples.loss) all.push_back(&seconds);
  all.push_back(&samples.rest_s);
  return all;
}

// The layers [begin, end) of the plan that a row of a report covers: "conv1", "conv1+relu1".
Slice layers_of(const Plan& plan, const std::string& row) {
  for (size_t begin = 0; begin < plan.layers.size(); ++begin) {
    std::string name = plan.layers[begin].name;
    for (size_t end = begin + 1;; ++end) {
      if (name == row) return {static_cast<int64_t>(begin), static_cast<int64_t>(end)};
      if (end == plan.layers.size() || !row.starts_with(name + "+")) break;
      name += "+" + plan.layers[end].name;
    }
  }
  fail("the times are of another model: '", plan.model, "' has no layer '", row, "'");
}

}  // namespace

std::vector<int64_t> rows_to_measure(const PlanRequest& request) {
  const int64_t most = std::max<int64_t>(request.step_rows / request.ranks, 1), fewer = most / 4;
  return fewer > 0 ? std::vector<int64_t>{fewer, most} : std::vector<int64_t>{most};
}

void take_mean(ComputeSamples& samples, Communicator& comm, Device device) {
  const std::vector<double*> mine = numbers(samples);
  std::vector<double> shares;
  for (const double* number : mine) shares.push_back(*number / comm.ranks());
  const std::vector<double> means = on_host::sum(comm, shares, device);
  for (size_t i = 0; i < mine.size(); ++i) *mine[i] = means[i];
}

ComputeSamples measure_compute(const Settings& settings, Communicator& together, std::span<const int64_t> rows) {
  ComputeSamples samples;
  for (const int64_t count : rows) {
    const Plan plan = make_plan(settings.model, alone(settings, count));
    const Profiler profiler = time_alone(settings, plan, kForTimes);
    const RankTimes times = rank_times(profiler);
    add_samples(make_report({&times, 1}, layer_facts(plan, count), count).rows, plan, samples);
  }
  take_mean(samples, together, settings.compute().device);
  samples.source = format("measured here, {} at a time",
                          together.ranks() == 1 ? "one worker" : format("{} workers", together.ranks()));
  return samples;
}

double median_of_means(std::span<const double> values) {
  const auto count = std::ssize(values);
  const int parts = static_cast<int>(std::min<int64_t>(count, kMeans));
  std::vector<double> means;
  for (int i = 0; i < parts; ++i) {
    const Slice part = split(count, parts, i);
    means.push_back(std::accumulate(values.begin() + part.begin, values.begin() + part.end, 0.0) /
                    static_cast<double>(part.size()));
  }
  return median(means);
}

double seconds_alone(const Settings& settings, Communicator& together, int64_t rows) {
  const Plan plan = make_plan(settings.model, alone(settings, rows));
  const Device device = settings.compute().device;
  const Profiler profiler =
      time_alone(settings, plan, kForSpeeds, [&] { on_host::sum(together, std::vector{0.0}, device); });
  std::vector<double> of_steps(profiler.step_ms().size());
  for (const Profiler::Row& row : profiler.rows())
    if (row.phase == Phase::kForward || row.phase == Phase::kBackward)
      std::transform(row.ms.begin(), row.ms.end(), of_steps.begin(), of_steps.begin(), std::plus());
  return median_of_means(of_steps) / 1e3;
}

void add_samples(std::span<const TimingRow> rows, const Plan& plan, ComputeSamples& samples) {
  const double size = static_cast<double>(size_of(activation_type(plan.request.on.precision)));
  samples.layers.resize(plan.layers.size());
  double weights_update_s = 0, loss_s = 0, batch_rows = 0, all_weights = 0;
  for (const LayerPlan& layer : plan.layers) all_weights += static_cast<double>(layer.weight_bytes);
  std::vector<size_t> filled(plan.layers.size(), 0);
  for (const TimingRow& row : rows) {
    if (row.kind == TimingRow::Kind::kOther && row.name == "loss") loss_s = row.ms / 1e3;
    if (row.kind == TimingRow::Kind::kOther) weights_update_s += row.update_ms / 1e3;
    if (row.kind == TimingRow::Kind::kRest) samples.rest_s = std::max(0.0, row.ms / 1e3);
    if (row.kind != TimingRow::Kind::kLayer) continue;
    const Slice layers = layers_of(plan, row.name);
    int64_t weights = 0;
    for (int64_t i = layers.begin; i < layers.end; ++i) weights += plan.layer(i).weight_bytes;
    const LayerPlan& last = plan.layer(layers.end - 1);
    if (weights != row.weight_bytes)
      fail("the times of layer '", row.name, "' are for ", row.weight_bytes, " bytes of weights, and it has ", weights,
           "; make them with owt time --workers 1 --keep-gradients, on the same model");
    batch_rows =
        std::round(static_cast<double>(row.activation_bytes) / size / static_cast<double>(last.out.elements()));
    if (batch_rows < 1) fail("the times of layer '", row.name, "' are for no rows");
    for (int64_t i = layers.begin; i < layers.end; ++i) {
      LayerSample sample{batch_rows};
      if (i == layers.begin) {
        sample.forward_s = row.forward_ms / 1e3;
        sample.backward_s = row.backward_ms / 1e3;
        sample.update_s = row.update_ms / 1e3;
      }
      samples.layers[static_cast<size_t>(i)].push_back(sample);
      ++filled[static_cast<size_t>(i)];
    }
  }
  for (size_t i = 0; i < filled.size(); ++i) {
    const LayerPlan& layer = plan.layers[i];
    if (filled[i] != 1) fail("the times hold layer '", layer.name, "' ", filled[i], " times, wanted once");
    // A GPU updates all weights at once.
    if (all_weights > 0)
      samples.layers[i].back().update_s += weights_update_s * static_cast<double>(layer.weight_bytes) / all_weights;
  }
  samples.loss.emplace_back(batch_rows, loss_s);
}

namespace {

struct Column {
  size_t index;
  const char* name;
  double least, most;  // allowed range; the row "rest" is a difference, so it may be negative
};
constexpr Column kForward{4, "forward_ms", 0, 1e12}, kBackward{5, "backward_ms", 0, 1e12},
    kUpdate{6, "update_ms", 0, 1e12}, kMs{7, "ms", -1e12, 1e12}, kActivations{13, "activation_bytes", 0, 1e15},
    kWeights{14, "weight_bytes", 0, 1e15}, kUpdateInBackward{18, "update_in_backward", 0, 1}, kRank{19, "rank", 0, 1e6};
constexpr size_t kColumns = 20;

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else
      cells.back() += c;
  }
  if (cells.size() != kColumns) fail(cells.size(), " columns, wanted ", kColumns);
  return cells;
}

double number_in(const std::vector<std::string>& cells, const Column& column) {
  const std::string& cell = cells[column.index];
  double found = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), found);
  if (error != std::errc() || end != cell.data() + cell.size() || !(found >= column.least && found <= column.most))
    fail("'", column.name, "' is '", cell, "', wanted a number from ", column.least, " to ", column.most);
  return found;
}

std::optional<TimingRow::Kind> kind_named(const std::string& name) {
  if (name == "layer") return TimingRow::Kind::kLayer;
  if (name == "rest") return TimingRow::Kind::kRest;
  if (name == "other") return TimingRow::Kind::kOther;
  return {};
}

std::optional<TimingRow> row_in(const std::string& line) {
  const std::vector<std::string> cells = cells_of(line);
  const auto kind = kind_named(cells[0]);
  if (!kind || number_in(cells, kRank) > 0) return {};
  TimingRow row;
  row.kind = *kind;
  row.name = cells[1];
  row.forward_ms = number_in(cells, kForward);
  row.backward_ms = number_in(cells, kBackward);
  row.update_ms = number_in(cells, kUpdate);
  row.ms = number_in(cells, kMs);
  row.activation_bytes = static_cast<int64_t>(number_in(cells, kActivations));
  row.weight_bytes = static_cast<int64_t>(number_in(cells, kWeights));
  if (number_in(cells, kUpdateInBackward) > 0)
    fail("layer '", row.name,
         "' was updated while its gradient was computed, which workers that sum gradients cannot do; ",
         "make the table with owt time --keep-gradients");
  return row;
}

}  // namespace

std::vector<TimingRow> read_times(const std::string& path) {
  constexpr const char* kHead = "kind,name,type,out,forward_ms,backward_ms,update_ms,ms,";
  const std::vector<std::string> lines = text_lines(path);
  if (lines.empty() || !lines[0].starts_with(kHead)) fail(path, ":1: this is no table of owt time --csv");
  std::vector<TimingRow> rows;
  for (size_t i = 1; i < lines.size(); ++i) {
    try {
      if (const auto row = row_in(lines[i])) rows.push_back(*row);
    } catch (const Error& e) {
      fail(path, ":", i + 1, ": ", e.what());
    }
  }
  if (std::all_of(rows.begin(), rows.end(), [](const TimingRow& row) { return row.backward_ms == 0; }))
    fail(path, ": no layer has a backward pass; wanted a table of training steps (owt time without --evaluation)");
  return rows;
}

}  // namespace owt
