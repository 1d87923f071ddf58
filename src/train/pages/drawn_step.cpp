#include "src/train/pages/drawn_step.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "src/core/check.h"
#include "src/core/log.h"
#include "src/parallel/draw_step.h"
#include "src/train/settings.h"

namespace owt {
namespace {

constexpr size_t kMostActions = 200;  // among the numbers

// Of layers that run as one, "conv1+relu1", the first has the time of all.
bool begins_with_layer(const std::string& row, const std::string& layer) {
  return row == layer || row.starts_with(layer + "+");
}

// The rows a rank has of a layer. Of a part of the outputs of all rows these are as many as have all outputs; the
// stages of a pipeline have all rows, though their activations are those of some at a time.
double rows_of(const CsvTable& times, const std::vector<std::string>& row, const Plan& plan, const LayerPlan& layer) {
  const auto all = static_cast<double>(plan.request.step_rows);
  if (plan.in_stages()) return all;
  const auto bytes = static_cast<double>(size_of(activation_type(plan.request.on.precision)));
  const double rows = times.number(row, "activation_bytes") / bytes / static_cast<double>(layer.out.elements());
  return rows > 0 ? rows : all / plan.ranks();
}

// Of the first rank that has the layer.
LayerSample sample_of(const CsvTable& times, const Plan& plan, const LayerPlan& layer) {
  for (const auto& row : times.rows)
    if (times.text(row, "kind") == "layer" && times.number(row, "ms") > 0 &&
        begins_with_layer(times.text(row, "name"), layer.name))
      return {rows_of(times, row, plan, layer), 1, times.number(row, "forward_ms") / 1e3,
              times.number(row, "backward_ms") / 1e3, times.number(row, "update_ms") / 1e3};
  return {static_cast<double>(plan.request.step_rows), 1};
}

ComputeSamples samples_of(const CsvTable& times, const Plan& plan) {
  ComputeSamples samples;
  const double rows = static_cast<double>(plan.request.step_rows) / (plan.in_stages() ? 1 : plan.ranks());
  for (const LayerPlan& layer : plan.layers) samples.layers.push_back({sample_of(times, plan, layer)});
  double loss_s = 0;
  for (const auto& row : times.rows) {
    if (times.number(row, "rank") != 0) continue;
    if (times.text(row, "name") == "loss") loss_s = times.number(row, "ms") / 1e3;
    if (times.text(row, "kind") == "rest") samples.rest_s = std::max(0.0, times.number(row, "ms") / 1e3);
  }
  samples.loss.emplace_back(rows, loss_s);
  return samples;
}

// All transfers of the run as if at one rate. Each takes what it took on the rank that came to it last: the others have
// waited for that one.
Network network_of(const CsvTable& times, const Plan& plan) {
  struct Seen {
    double bytes = 0, seconds = INFINITY;
  };
  std::map<std::string, Seen> all;
  for (const auto& row : times.rows) {
    if (times.text(row, "kind") != "transfer") continue;
    const double ms = times.number(row, "transfer_ms");
    Seen& seen = all[times.text(row, "name")];
    seen.bytes = std::max(seen.bytes, times.number(row, "bytes_sent"));
    seen.seconds = std::min(seen.seconds, (ms > 0 ? ms : times.number(row, "ms")) / 1e3);
  }
  double bytes = 0, seconds = 0;
  for (const auto& [name, seen] : all) bytes += seen.bytes, seconds += seen.seconds;
  Network network;
  network.ranks_per_host = plan.ranks();
  network.local = {0, bytes > 0 && seconds > 0 ? bytes / seconds : 1e12};
  return network;
}

HtmlTable table_of(const DrawnStep& step) {
  HtmlTable table{{"action", "of", "begins, ms", "takes, ms"}, {}};
  for (const TimedAction& at : step.times) {
    if (table.rows.size() == kMostActions) break;
    table.rows.push_back({name_of(at.action.kind), subject(step.plan, at.action), short_number(1e3 * at.begin_s),
                          short_number(1e3 * (at.end_s - at.begin_s))});
  }
  return table;
}

}  // namespace

Plan plan_of(const RunRecord& run) {
  const Settings settings = read_settings((std::filesystem::path(run.folder) / "config.toml").string());
  return make_plan(settings.model, settings.plan_request());
}

Figure drawn_step(const RunRecord& run) {
  DrawnStep step{plan_of(run), {}, {}};
  if (run.times.rows.empty()) fail("no timing.csv");
  const auto compute = measured_compute(samples_of(run.times, step.plan));
  step.prediction = price_step(step.plan, network_of(run.times, step.plan), *compute, &step.times);
  const Prediction& p = step.prediction;
  const std::string about = format(
      "{} ms: {} computing, {} waiting for transfers, {} updating. Layers take what they took in the run, transfers "
      "what their bytes take at the mean rate of the run's; what belongs to neither is not drawn.",
      short_number(1e3 * p.step_s()), short_number(1e3 * p.compute_s), short_number(1e3 * p.exposed_s),
      short_number(1e3 * p.update_s));
  const std::string title = "A step of " + run.name + " in time";
  const std::string picture = format("<div class=\"scroll\"><img class=\"drawing\" src=\"{}\" alt=\"{}\"></div>\n",
                                     data_uri("image/svg+xml", draw_steps({step})), escaped(title + ": " + about));
  return {title, picture, about, table_of(step), "", true};
}

}  // namespace owt
