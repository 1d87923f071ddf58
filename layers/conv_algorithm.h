// Which algorithm computes a pass of a convolution on the CPU: direct, by oneDNN, own products for images with few
// channels (layers/few_channel_conv.h) or for depthwise convolutions (layers/depthwise_conv.h), or Winograd's
// (layers/winograd.h).
//
// The better one is found by measuring, once per geometry, pass, type and team size, or taken by the shape alone. The
// choices decide the last bits of a result, so all ranks of a process share one table, the processes of a run follow
// one of them (parallel/shared_choices.h), and a checkpoint keeps it for the run that resumes.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace owt {

enum class ConvAlgorithm {
  kAuto,     // measure, take the faster one
  kByShape,  // do not measure: the last candidate, which is an algorithm of ours wherever one can compute the pass
  kDirect,
  kFewChannels,   // of images
  kDepthwise,     // each channel by itself
  kWinogradBf16,  // with factors of bf16
  kWinograd,      // with factors of f32
};
const char* name_of(ConvAlgorithm algorithm);                // "auto", "direct", "few-channels", "winograd" ...
ConvAlgorithm conv_algorithm_from(const std::string& name);  // throws Error for another name

class ConvChoices {
 public:
  // What may be chosen for a pass: direct, then the others that can compute it here, those of f32 last.
  using Candidates = std::vector<ConvAlgorithm>;
  // The time of one pass includes all that it costs in a step, such as the packing of weights.
  struct Measured {
    ConvAlgorithm algorithm = ConvAlgorithm::kDirect;
    double ms = 0;
    double error = 0;  // ||its result - direct|| / ||direct||
  };
  struct Choice {
    std::string key;
    ConvAlgorithm algorithm = ConvAlgorithm::kDirect;
    std::vector<Measured> measured;  // as many as candidates; none for a preloaded choice
  };

  // The table of this process.
  static ConvChoices& process();

  // Holds for convolutions bound from now on. What the mode's algorithm cannot compute is direct.
  void set_mode(ConvAlgorithm mode);
  ConvAlgorithm mode() const;

  // What a pass of this geometry is called.
  static std::string key(const std::string& geometry, int team);
  // The algorithm (neither kAuto nor kByShape) of the pass named `key`. In kAuto mode what the table knows, else the
  // outcome of measure(), which is then kept: the fastest whose error is at most largest_error, if it is more than 5 %
  // faster than direct. One host thread measures at a time, the others wait. measure() must not call this table. Where
  // the table has what is no candidate, as a checkpoint from another machine may, it has direct from now on.
  ConvAlgorithm choose(const std::string& key, const Candidates& candidates, double largest_error,
                       const std::function<std::vector<Measured>()>& measure);

  // What was measured or preloaded so far, key -> "direct" | "winograd" ...
  std::map<std::string, std::string> exported() const;
  // Adds to the table; keys it has already are replaced. Throws Error for an unknown algorithm, and changes
  // nothing.
  void preload(const std::map<std::string, std::string>& choices);
  // preload(), and teams of other sizes take the choice of the first key of the same geometry instead of measuring:
  // what one team computed another computes with the same algorithms.
  void preload_for_all_teams(const std::map<std::string, std::string>& choices);
  // As preload_for_all_teams(), and nothing is measured here any more: what the choices of another process lack is
  // computed directly.
  void follow(const std::map<std::string, std::string>& choices);
  void clear();
  // For tests: called with the key and the measured times before the choice is made; it may change the times.
  using Retime = std::function<void(const std::string& key, std::vector<Measured>& measured)>;
  void set_retime(Retime retime);

  // In order of keys; and as lines for the log, "KEY: winograd (direct 46.01 ms, winograd 27.72 ms with error 1e-06)".
  std::vector<Choice> choices() const;
  std::vector<std::string> report() const;
  // What a checkpoint asked for and is not to be had on this machine, a line each.
  std::vector<std::string> warnings() const;

 private:
  ConvAlgorithm known(const std::string& key, const Candidates& candidates);

  mutable std::mutex mutex_;  // held while measuring, too
  ConvAlgorithm mode_ = ConvAlgorithm::kAuto;
  std::map<std::string, Choice> table_;
  std::map<std::string, ConvAlgorithm> all_teams_;  // by geometry
  int replaced_ = 0;                                // choices that are no candidates here
  bool follows_ = false;                            // see follow()
  Retime retime_;
};

}  // namespace owt
