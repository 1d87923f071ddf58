#include "src/report/pages/prometheus.h"

#include <cmath>
#include <map>

#include "src/system/log.h"
#include "src/system/printable.h"

namespace owt {
namespace {

// A folder name may have any bytes; a label must be UTF-8.
std::string label_value(const std::string& text) {
  std::string safe;
  for (const char c : printable(text)) safe += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return safe;
}

// Groups all lines of a metric, as the format requires.
class Gauges {
 public:
  void add(const std::string& name, const char* help, const std::string& labels, double value) {
    if (!std::isfinite(value)) return;
    if (texts_[name].empty()) {
      names_.push_back(name);
      texts_[name] = format("# HELP owt_{0} {1}\n# TYPE owt_{0} gauge\n", name, help);
    }
    texts_[name] += format("owt_{}{{{}}} {}\n", name, labels, value);
  }
  std::string text() const {
    std::string all;
    for (const std::string& name : names_) all += texts_.at(name);
    return all;
  }

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::string> texts_;
};

void add_run(const RunRecord& run, Gauges& to) {
  const std::string labels = "run=\"" + label_value(run.name) + "\"";
  const StepColumns& steps = run.metrics.steps;
  if (!steps.step.empty()) {
    to.add("step", "Updates done.", labels, static_cast<double>(steps.step.back()));
    to.add("epochs", "Epochs done, with a fraction.", labels, steps.epochs.back());
    to.add("training_seconds", "Time of training so far.", labels, 3600 * steps.hours.back());
    to.add("loss", "Mean over the rows of the newest logged step.", labels, steps.loss.back());
    to.add("top1", "Fraction of the rows of that step.", labels, steps.top1.back());
    to.add("learning_rate", "Of that step.", labels, steps.rate.back());
    to.add("images_per_second", "Of all workers.", labels, steps.images_per_second.back());
    to.add("data_wait_seconds", "Waited for data in a step.", labels, 1e-3 * steps.data_wait_ms.back());
    to.add("gradient_norm", "Where gradients are clipped.", labels, steps.gradient_norm.back());
  }
  if (!run.metrics.worlds.empty())
    to.add("workers", "Of the run.", labels, static_cast<double>(run.metrics.worlds.back().workers));
  to.add("running", "1: a process of this machine is at it.", labels, run.running ? 1 : 0);
  std::map<std::string, EvaluationLine> newest;
  for (const EvaluationLine& line : run.metrics.evaluations) newest[line.split] = line;
  for (const auto& [split, line] : newest) {
    const std::string of_split = labels + ",split=\"" + label_value(split) + "\"";
    to.add("evaluation_loss", "Of the newest evaluation.", of_split, line.loss);
    to.add("evaluation_top1", "Fraction.", of_split, line.top1);
    to.add("evaluation_top5", "Fraction.", of_split, line.top5);
  }
}

}  // namespace

std::string prometheus_text(Runs runs) {
  Gauges gauges;
  for (const RunRecord& run : runs) add_run(run, gauges);
  return gauges.text();
}

}  // namespace owt
