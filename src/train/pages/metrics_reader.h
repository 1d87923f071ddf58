// metrics.jsonl (src/train/metrics.h) as columns of numbers, read on where it grows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/dataset.h"

namespace owt {

// A process that began or went on with the run.
struct StartLine {
  int64_t step = 0;                                          // updates done before
  double epoch = 0, steps_per_epoch = 0;                     // where it began; 0: not known
  std::vector<std::pair<std::string, std::string>> facts{};  // what it was, in the order of the file
};

struct EvaluationLine {
  int64_t step = 0;
  double epochs = 0, hours = 0;
  std::string split{};
  double loss = 0, top1 = 0, top5 = 0;
  int64_t images = 0;
  bool ema = false;
};

// Of a parameter: the mean size of its values, and of what the last update changed; no number: not known.
struct ParameterSize {
  std::string name;
  double mean = 0, change = 0;
};
struct WeightLine {
  int64_t step = 0;
  double epochs = 0, hours = 0;
  std::vector<ParameterSize> parameters{};  // in the order of the file
};

// Of the logged steps, in order; what a line lacks is no number (NaN).
struct StepColumns {
  std::vector<int64_t> step;
  std::vector<double> epochs;  // done, with a fraction where the steps of an epoch are known
  std::vector<double> hours;   // of training so far, in all processes of the run
  std::vector<double> loss, top1, rate, images_per_second, data_wait_ms, gradient_norm;
};

struct Metrics {
  StepColumns steps;
  std::vector<EvaluationLine> evaluations;
  std::vector<WeightLine> weights;
  std::vector<StartLine> starts;
  std::string bottleneck{};  // of the newest timed steps, a sentence; empty: none were timed
  std::string end{};         // "finished", "stopped", "diverged"; empty: the newest process has written no end
  int64_t unread_lines = 0;  // that are no records
};

class MetricsReader {
 public:
  // steps_per_epoch: for files that do not say it; 0: epochs are whole numbers then.
  explicit MetricsReader(std::string path, double steps_per_epoch = 0)
      : path_(std::move(path)), steps_per_epoch_(steps_per_epoch) {}

  // Takes in the lines that have come since, but for a last one that has no end yet; the whole file once more where it
  // is another one now, as after a run has resumed. A missing file has no lines. True: something has come or changed.
  // Throws Error where the file cannot be read.
  bool read();
  const Metrics& metrics() const { return metrics_; }

 private:
  void take(std::string_view line);
  bool take_flat(std::string_view line);
  void take_other(std::string_view line);
  double epochs_at(int64_t step, double epoch) const;
  double hours_at(double seconds);

  std::string path_;
  double steps_per_epoch_;
  uint64_t file_ = 0, at_ = 0;               // which file, and bytes read of it
  double seconds_before_ = 0, seconds_ = 0;  // of earlier processes, and in all
  Metrics metrics_;
};

}  // namespace owt
