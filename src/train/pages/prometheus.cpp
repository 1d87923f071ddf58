#include "src/train/pages/prometheus.h"

#include <cmath>
#include <map>

#include "src/core/log.h"
#include "src/core/printable.h"

namespace owt {
namespace {

// A folder's name may be any bytes; a label is UTF-8.
std::string label_value(const std::string& text) {
  std::string safe;
  for (const char c : printable(text)) safe += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return safe;
}

std::string gauge(const std::string& name, const std::string& help, const std::string& labels, double value) {
  if (!std::isfinite(value)) return "";
  return format("# HELP owt_{0} {1}\n# TYPE owt_{0} gauge\nowt_{0}{{{2}}} {3}\n", name, help, labels, value);
}

// One name with a line for each split.
std::string gauges(const std::map<std::string, EvaluationLine>& newest, const std::string& run, const std::string& name,
                   const std::string& help, double EvaluationLine::*value) {
  std::string lines;
  for (const auto& [split, line] : newest)
    if (std::isfinite(line.*value))
      lines += format("owt_{}{{{},split=\"{}\"}} {}\n", name, run, label_value(split), line.*value);
  return lines.empty() ? "" : format("# HELP owt_{0} {1}\n# TYPE owt_{0} gauge\n{2}", name, help, lines);
}

}  // namespace

std::string prometheus_text(const RunRecord& run) {
  const std::string labels = "run=\"" + label_value(run.name) + "\"";
  const StepColumns& steps = run.metrics.steps;
  std::string text;
  if (!steps.step.empty()) {
    text += gauge("step", "Updates done.", labels, static_cast<double>(steps.step.back()));
    text += gauge("epochs", "Epochs done, with a fraction.", labels, steps.epochs.back());
    text += gauge("training_seconds", "Time of training so far.", labels, 3600 * steps.hours.back());
    text += gauge("loss", "Mean over the rows of the newest logged step.", labels, steps.loss.back());
    text += gauge("top1", "Fraction of the rows of that step.", labels, steps.top1.back());
    text += gauge("learning_rate", "Of that step.", labels, steps.rate.back());
    text += gauge("images_per_second", "Of all workers.", labels, steps.images_per_second.back());
    text += gauge("data_wait_seconds", "Waited for data in a step.", labels, 1e-3 * steps.data_wait_ms.back());
    text += gauge("gradient_norm", "Where gradients are clipped.", labels, steps.gradient_norm.back());
  }
  std::map<std::string, EvaluationLine> newest;
  for (const EvaluationLine& line : run.metrics.evaluations) newest[line.split] = line;
  text += gauges(newest, labels, "evaluation_loss", "Of the newest evaluation.", &EvaluationLine::loss);
  text += gauges(newest, labels, "evaluation_top1", "Fraction.", &EvaluationLine::top1);
  text += gauges(newest, labels, "evaluation_top5", "Fraction.", &EvaluationLine::top5);
  return text;
}

}  // namespace owt
