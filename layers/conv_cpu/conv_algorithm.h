// Chooses the algorithm for each pass of a convolution on the CPU. The candidates are oneDNN's direct algorithm, our
// products for images with few channels (few_channel_conv.h), depthwise convolutions (depthwise_conv.h),
// and Winograd's algorithm (layers/conv_cpu/winograd.h).
//
// The fastest is found by measurement, once for each geometry, pass, type and team size, or taken by the shape alone.
// The choice affects the last bits of a result. So all ranks of a process share one table, the processes of a run
// follow one process (parallel/shared_choices.h), and a checkpoint stores the table for the run that resumes.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace owt {

enum class ConvAlgorithm {
  kAuto,     // measure, take the fastest
  kByShape,  // no measurement: the last candidate, which is one of our algorithms if any can compute the pass
  kDirect,
  kFewChannels,   // our products for images with few channels
  kDepthwise,     // one kernel for each channel
  kWinogradBf16,  // with bf16 factors
  kWinograd,      // with f32 factors
};
const char* name_of(ConvAlgorithm algorithm);                // "auto", "direct", "few-channels", "winograd" ...
ConvAlgorithm conv_algorithm_from(const std::string& name);  // throws Error for another name

class ConvChoices {
 public:
  // The algorithms for a pass: direct, then the others that can compute it on this machine, algorithms with f32 factors
  // last.
  // last.
  using Candidates = std::vector<ConvAlgorithm>;
  // The time of one pass includes all its costs in a step, such as packing the weights.
  struct Timing {
    ConvAlgorithm algorithm = ConvAlgorithm::kDirect;
    double ms = 0;
    double error = 0;  // ||its result - direct|| / ||direct||
  };
  struct Chosen {
    std::string key;
    ConvAlgorithm algorithm = ConvAlgorithm::kDirect;
    std::vector<Timing> measured;  // one for each candidate; empty for a preloaded choice
  };

  // The table of this process.
  static ConvChoices& process();

  // Applies to convolutions that are bound later. A pass that the algorithm cannot compute is direct.
  void set_mode(ConvAlgorithm mode);
  ConvAlgorithm mode() const;

  // The name of a pass with this geometry.
  static std::string key(const std::string& geometry, int team);
  // The algorithm (neither kAuto nor kByShape) of the pass named `key`. In mode kAuto it is the table's entry, else the
  // result of measure(), which is stored. That is the fastest algorithm whose error is at most largest_error, if it is
  // more than 5 % faster than direct. One host thread measures at a time; the others wait. measure() must not call this
  // table. If the entry is not a candidate, which may happen with a checkpoint from another machine, it becomes direct.
  ConvAlgorithm choose(const std::string& key, const Candidates& candidates, double largest_error,
                       const std::function<std::vector<Timing>()>& measure);

  // All measured or preloaded choices: key -> "direct" | "winograd" ...
  std::map<std::string, std::string> exported() const;
  // Adds to the table and replaces keys that exist. Throws Error for an unknown algorithm; the table is then unchanged.
  void preload(const std::map<std::string, std::string>& choices);
  // Like preload(). In addition, teams of other sizes use the choice of the first key of the same geometry and do not
  // measure. So the same algorithms compute the result for any team size.
  void preload_for_all_teams(const std::map<std::string, std::string>& choices);
  // Like preload_for_all_teams(), and this process stops measuring: a pass that `choices` lacks is computed directly.
  void follow(const std::map<std::string, std::string>& choices);
  void clear();
  // For tests: called with the key and the measured times before the choice is made; it may change the times.
  using Retime = std::function<void(const std::string& key, std::vector<Timing>& measured)>;
  void set_retime(Retime retime);

  // In order of keys. report(): lines for the log, "KEY: winograd (direct 46.01 ms, winograd 27.72 ms with error
  // 1e-06)".
  std::vector<Chosen> choices() const;
  std::vector<std::string> report() const;
  // One line each for choices of a checkpoint that are not possible on this machine.
  std::vector<std::string> warnings() const;

 private:
  ConvAlgorithm known(const std::string& key, const Candidates& candidates);

  mutable std::mutex mutex_;  // also held while measuring
  ConvAlgorithm mode_ = ConvAlgorithm::kAuto;
  std::map<std::string, Chosen> table_;
  std::map<std::string, ConvAlgorithm> all_teams_;  // by geometry
  int replaced_ = 0;                                // choices that were not candidates and became direct
  bool follows_ = false;                            // set by follow()
  Retime retime_;
};

}  // namespace owt
