#include <algorithm>
#include <cmath>

#include "src/core/profiler.h"
#include "src/report/pages/sections.h"
#include "src/system/log.h"
#include "src/train/progress.h"

namespace owt {
namespace {

// The value in the latest start record; if there is none, the recipe's value.
std::string fact_of(const RunRecord& run, const std::string& name, const std::string& setting) {
  const auto of = [](const auto& texts, const std::string& key) {
    const auto found = std::find_if(texts.begin(), texts.end(), [&](const auto& text) { return text.first == key; });
    return found == texts.end() ? std::string() : found->second;
  };
  const std::string fact = run.metrics.starts.empty() ? "" : of(run.metrics.starts.back().facts, name);
  const std::string known = fact.empty() ? of(run.settings, setting) : fact;
  return known.empty() ? "–" : known;
}

std::string state_of(const RunRecord& run) {
  const StepColumns& steps = run.metrics.steps;
  if (run.running) return "running";
  if (!run.metrics.end.empty()) return run.metrics.end;
  if (steps.step.empty()) return "not begun";
  return std::isfinite(steps.loss.back()) ? "no end written" : "diverged";
}

const EvaluationLine* best_of(const RunRecord& run) {
  const auto& all = run.metrics.evaluations;
  const auto best = std::max_element(all.begin(), all.end(), [](auto& a, auto& b) { return a.top1 < b.top1; });
  return best == all.end() ? nullptr : &*best;
}

double last_of(const std::vector<double>& values) {
  const auto found = std::find_if(values.rbegin(), values.rend(), [](double value) { return std::isfinite(value); });
  return found == values.rend() ? NAN : *found;
}

double median_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  return values.empty() ? NAN : median(values);
}

std::string percent_text(double fraction) { return std::isfinite(fraction) ? format("{:.2f} %", 100 * fraction) : "–"; }

std::vector<std::string> overview_of(const RunRecord& run) {
  const StepColumns& steps = run.metrics.steps;
  const EvaluationLine* const best = best_of(run);
  const auto& all = run.metrics.evaluations;
  const double hours = last_of(steps.hours);
  return {run.name,
          state_of(run),
          steps.step.empty() ? "–" : std::to_string(steps.step.back()),
          short_number(last_of(steps.epochs)),
          std::isfinite(hours) ? duration_text(3600 * hours) : "–",
          fact_of(run, "strategy", "parallel.strategy"),
          fact_of(run, "workers", "parallel.workers"),
          short_number(median_of(steps.images_per_second)),
          short_number(last_of(steps.loss)),
          all.empty() ? "–" : short_number(all.back().loss),
          all.empty() ? "–" : percent_text(all.back().top1),
          best ? percent_text(best->top1) : "–",
          best ? std::to_string(best->step) : "–"};
}

}  // namespace

std::string overview_section(Runs runs) {
  HtmlTable table{{"run", "state", "steps", "epochs", "trained for", "strategy", "workers", "images/s", "training loss",
                   "loss", "top-1", "best top-1", "at step"},
                  {},
                  true};
  std::string wrong;
  for (const RunRecord& run : runs) {
    table.rows.push_back(overview_of(run));
    for (const std::string& line : run.wrong) wrong += missing(line);
  }
  return section("overview", runs.size() == 1 ? "Where it is" : "Where they are", html_of(table) + wrong);
}

}  // namespace owt
