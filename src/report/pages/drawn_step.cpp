#include "src/report/pages/drawn_step.h"

#include <algorithm>
#include <filesystem>

#include "src/recipe/settings.h"
#include "src/report/draw_step.h"
#include "src/report/what_if.h"
#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

constexpr size_t kMostActions = 200;  // most rows of the table of numbers

Phase phase_of(const std::string& other_row) {
  if (other_row == "loss") return Phase::kLoss;
  return other_row == "weights" ? Phase::kUpdate : Phase::kData;
}

void add_row(const CsvTable& times, const std::vector<std::string>& row, RankTimes& to) {
  const std::string kind = times.text(row, "kind"), name = times.text(row, "name");
  const double ms = times.number(row, "ms");
  const auto add_pass = [&](Phase phase, const char* column) {
    if (const double of_pass = times.number(row, column); of_pass > 0) to.rows.push_back({name, phase, of_pass});
  };
  if (kind == "layer") {
    add_pass(Phase::kForward, "forward_ms");
    add_pass(Phase::kBackward, "backward_ms");
    add_pass(Phase::kUpdate, "update_ms");
  } else if (kind == "transfer") {
    to.rows.push_back({name, Phase::kTransfer, ms, times.number(row, "transfer_ms")});
  } else if (kind == "other") {
    to.rows.push_back({name, phase_of(name), ms});
  } else if (kind == "step") {
    to.step_ms = ms;
  }
}

// The times of every rank. If the file has only some ranks, the others get the times of the first one.
std::vector<RankTimes> rank_times_of(const CsvTable& times, const Plan& plan) {
  std::vector<RankTimes> ranks(static_cast<size_t>(plan.ranks()));
  for (const auto& row : times.rows) {
    const double rank = times.number(row, "rank");
    if (rank < 0 || rank >= plan.ranks()) fail("timing.csv is of more than ", plan.ranks(), " workers");
    add_row(times, row, ranks[static_cast<size_t>(rank)]);
  }
  for (RankTimes& each : ranks)
    if (each.rows.empty()) each = ranks.front();
  return ranks;
}

// The values of the first rank.
Prediction figures_of(const Plan& plan, const StepWalk& step) {
  Prediction figures = prediction_of(plan);
  figures.exposed_s = step.ranks.front().exposed_s, figures.update_s = step.ranks.front().updated_s;
  figures.compute_s = step.end_s() - figures.exposed_s - figures.update_s;
  return figures;
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
  if (run.times.rows.empty()) fail("no timing.csv");
  DrawnStep step{plan_of(run), {}, {}};
  const StepWalk walked = walk_measured(step.plan, rank_times_of(run.times, step.plan)).step;
  step.prediction = figures_of(step.plan, walked), step.times = walked.times;
  const Prediction& p = step.prediction;
  const std::string about = format(
      "{} ms: {} computing, {} waiting for transfers, {} updating. The drawing replays the actions of a step with the "
      "times that each worker measured. Time between layers is spread over the actions. Blank space at the start is a "
      "wait for data.",
      short_number(1e3 * p.step_s()), short_number(1e3 * p.compute_s), short_number(1e3 * p.exposed_s),
      short_number(1e3 * p.update_s));
  const std::string title = "A step of " + run.name + " in time";
  const std::string picture = format("<div class=\"scroll\"><img class=\"drawing\" src=\"{}\" alt=\"{}\"></div>\n",
                                     data_uri("image/svg+xml", draw_steps({step})), escaped(title + ": " + about));
  return {title, picture, about, table_of(step), "", true};
}

}  // namespace owt
