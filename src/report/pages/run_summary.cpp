#include "src/report/pages/run_summary.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "src/report/pages/html.h"
#include "src/system/log.h"
#include "src/train/progress.h"

namespace owt {
namespace {

constexpr size_t kRecentLines = 20;  // for the time left

using NamedTexts = std::vector<std::pair<std::string, std::string>>;

std::string text_of(const NamedTexts& texts, const std::string& name) {
  const auto found = std::find_if(texts.begin(), texts.end(), [&](const auto& text) { return text.first == name; });
  return found == texts.end() ? std::string() : found->second;
}

double setting_of(const RunRecord& run, const std::string& name) {
  const std::string text = text_of(run.settings, name);
  return text.empty() ? 0 : std::strtod(text.c_str(), nullptr);
}

}  // namespace

std::string state_of(const RunRecord& run) {
  const StepColumns& steps = run.metrics.steps;
  if (run.running) return "running";
  if (!run.metrics.end.empty()) return run.metrics.end;
  if (steps.step.empty()) return "not begun";
  return std::isfinite(steps.loss.back()) ? "no end written" : "diverged";
}

std::string fact_of(const RunRecord& run, const std::string& name, const std::string& setting) {
  const std::string fact = run.metrics.starts.empty() ? "" : text_of(run.metrics.starts.back().facts, name);
  const std::string known = fact.empty() ? text_of(run.settings, setting) : fact;
  return known.empty() ? "–" : known;
}

std::string workers_of(const RunRecord& run) {
  const auto& worlds = run.metrics.worlds;
  return worlds.empty() || worlds.back().of_start ? fact_of(run, "workers", "parallel.workers")
                                                  : std::to_string(worlds.back().workers);
}

std::string recipe_of(const RunRecord& run) {
  const std::string command = fact_of(run, "command", ""), word = " train ";
  const size_t found = command.find(word), begin = found + word.size();
  if (found == command.npos || begin >= command.size() || command[begin] == '-') return "";
  return command.substr(begin, command.find(' ', begin) - begin);
}

const EvaluationLine* best_of(const RunRecord& run) {
  const auto& all = run.metrics.evaluations;
  const auto best = std::max_element(all.begin(), all.end(), [](auto& a, auto& b) { return a.top1 < b.top1; });
  return best == all.end() ? nullptr : &*best;
}

// The same rule as in Schedule::total_steps().
int64_t total_steps_of(const RunRecord& run) {
  const double most = setting_of(run, "schedule.max_steps"), epochs = setting_of(run, "schedule.epochs");
  double by_epochs = 0;
  if (!run.metrics.starts.empty() && epochs > 0) {
    const StartLine& start = run.metrics.starts.back();
    by_epochs = static_cast<double>(start.step) + std::ceil((epochs - start.epoch) * start.steps_per_epoch);
  }
  const double total = most > 0 && by_epochs > 0 ? std::min(most, by_epochs) : std::max(most, by_epochs);
  return total > 0 && total < 1e15 ? static_cast<int64_t>(total) : 0;
}

double seconds_left_of(const RunRecord& run) {
  const StepColumns& steps = run.metrics.steps;
  const int64_t total = total_steps_of(run);
  if (!run.running || total == 0 || steps.step.size() < 2) return NAN;
  const size_t last = steps.step.size() - 1, from = last - std::min(last, kRecentLines);
  const int64_t done = steps.step[last] - steps.step[from], left = std::max<int64_t>(total - steps.step[last], 0);
  return done <= 0
             ? NAN
             : 3600 * (steps.hours[last] - steps.hours[from]) * static_cast<double>(left) / static_cast<double>(done);
}

double last_finite(const std::vector<double>& values) {
  const auto found = std::find_if(values.rbegin(), values.rend(), [](double value) { return std::isfinite(value); });
  return found == values.rend() ? NAN : *found;
}

std::string percent_text(double fraction) { return std::isfinite(fraction) ? format("{:.2f} %", 100 * fraction) : "–"; }

std::string steps_text(const RunRecord& run) {
  const std::vector<int64_t>& steps = run.metrics.steps.step;
  if (steps.empty()) return "–";
  const int64_t total = total_steps_of(run);
  return steps.back() < total ? format("{} of {}", steps.back(), total) : std::to_string(steps.back());
}

std::string time_text(int64_t seconds) {
  const std::time_t at = seconds;
  std::tm local{};
  char text[32];
  return localtime_r(&at, &local) && std::strftime(text, sizeof text, "%F %T", &local) ? text : "–";
}

std::string split_of(std::span<const RunRecord> runs) {
  std::string name;
  for (const RunRecord& run : runs)
    for (const EvaluationLine& line : run.metrics.evaluations) {
      if (name.empty()) name = line.split;
      if (line.split != name) return "evaluation";
    }
  return name.empty() ? "test" : name == "val" ? "validation" : name;
}

std::string last_line_of(const RunRecord& run) {
  if (run.changed == 0) return "–";
  const std::string text = time_text(run.changed);
  return format("<time data-at=\"{}\" title=\"{}\">{}</time>", run.changed, text, text);
}

}  // namespace owt
