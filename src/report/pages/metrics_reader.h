// metrics.jsonl (src/train/metrics.h) as columns of numbers, read incrementally while it grows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/dataset.h"

namespace owt {

// A process that began or resumed the run.
struct StartLine {
  int64_t step = 0;                                          // updates done before
  double epoch = 0, steps_per_epoch = 0;                     // its first epoch; 0: unknown
  std::vector<std::pair<std::string, std::string>> facts{};  // in the order of the file
};

struct EvaluationLine {
  int64_t step = 0;
  double epochs = 0, hours = 0;
  std::string split{};
  double loss = 0, top1 = 0, top5 = 0;
  int64_t images = 0;
  bool ema = false;
};

// The number of workers from a step on, as a start or a change during the run has it.
struct WorldLine {
  int64_t step = 0;  // updates done before
  double epochs = 0, hours = 0;
  int64_t workers = 0;    // at least 1
  bool of_start = false;  // text and repeated are unset
  std::string text{};     // what changed
  double repeated = 0;    // steps that were computed again; NaN: unknown
};

// The mean size of a parameter's values, and of their last change; NaN: unknown.
struct ParameterSize {
  std::string name;
  double mean = 0, change = 0;
};
struct WeightLine {
  int64_t step = 0;
  double epochs = 0, hours = 0;
  std::vector<ParameterSize> parameters{};  // in the order of the file
};

// The logged steps in order; NaN if a line lacks a value.
struct StepColumns {
  std::vector<int64_t> step;
  std::vector<double> epochs;  // done, with a fraction if the steps per epoch are known
  std::vector<double> hours;   // training time so far, over all processes of the run
  std::vector<double> loss, top1, rate, images_per_second, data_wait_ms, gradient_norm;
};

struct Metrics {
  StepColumns steps;
  std::vector<EvaluationLine> evaluations;
  std::vector<WeightLine> weights;
  std::vector<StartLine> starts;
  std::vector<WorldLine> worlds;  // in the order of the file
  std::string bottleneck{};       // a sentence about the latest timed steps; empty: none were timed
  std::string end{};              // "finished", "stopped", "diverged"; empty: the latest process has not written an end
  int64_t unread_lines = 0;       // number of lines that are no records
};

class MetricsReader {
 public:
  // steps_per_epoch: for files without it; 0: epochs are then integers.
  explicit MetricsReader(std::string path, double steps_per_epoch = 0)
      : path_(std::move(path)), steps_per_epoch_(steps_per_epoch) {}

  // Reads lines that were appended, except an incomplete last one. Reads the whole file again if it was replaced, e.g.
  // when the run was resumed. A missing file has no lines. Returns true if anything was added or changed. Throws Error
  // if the file cannot be read.
  bool read();
  const Metrics& metrics() const { return metrics_; }
  int64_t changed() const { return changed_; }  // time of the file's last change, seconds since 1970; 0: unknown

 private:
  void take(std::string_view line);
  bool take_flat(std::string_view line);
  void take_other(std::string_view line);
  void take_world(const WorldLine& line);
  double epochs_at(int64_t step, double epoch) const;
  double hours_at(double seconds);

  std::string path_;
  double steps_per_epoch_;
  uint64_t file_ = 0, at_ = 0;  // identity of the file, and bytes read
  int64_t changed_ = 0;
  double seconds_before_ = 0, seconds_ = 0;  // earlier processes; in total
  Metrics metrics_;
};

}  // namespace owt
