// Which algorithm computes a convolution on the CPU: direct, or Winograd's F(4x4, 3x3) (Lavin and Gray 2015),
// which spends about a quarter of the multiplications on 3x3 kernels of stride 1 but wants another layout of the
// images.
//
// The better one is found by measuring, once per geometry, pass and team size. The choices decide the last bits of a
// result, so all ranks of a process share one table, the processes of a run follow one of them
// (parallel/shared_choices.h), and a checkpoint keeps it for the run that resumes.
//
// Not every oneDNN has Winograd's algorithm (2.2 to 3.1 have it for processors with AVX-512, 3.7 for none). Without it
// every convolution is direct, and report() and warnings() say so.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace owt {

enum class ConvAlgorithm {
  kAuto,  // measure, take the faster one
  kDirect,
  kWinograd,  // wherever it can be used
};
const char* name_of(ConvAlgorithm algorithm);                // "auto", "direct", "winograd"
ConvAlgorithm conv_algorithm_from(const std::string& name);  // throws Error for another name

// Why no convolution can be computed by Winograd's algorithm on this machine, in words; empty where some can.
std::string why_no_winograd();

class ConvChoices {
 public:
  // The time of one pass includes all that it costs in a step: changes of layout, the packing of weights.
  struct Measured {
    double direct_ms = 0, winograd_ms = 0;
    double error = 0;  // ||winograd - direct|| / ||direct||
  };
  struct Choice {
    std::string key;
    ConvAlgorithm algorithm;
    Measured measured;  // all 0 for a preloaded choice
  };

  // no_winograd: what why_no_winograd() says.
  explicit ConvChoices(std::string no_winograd = "") : no_winograd_(std::move(no_winograd)) {}

  // The table of this process.
  static ConvChoices& process();

  // Holds for convolutions bound from now on.
  void set_mode(ConvAlgorithm mode);
  ConvAlgorithm mode() const;

  // What a pass of this geometry is called.
  static std::string key(const std::string& geometry, int team);
  // The algorithm (never kAuto) of the pass named `key`, for which both can be used. In kAuto mode what the table
  // knows, else the outcome of measure(), which is then kept: Winograd where it is more than 5 % faster and its error
  // is at most 1e-4. One host thread measures at a time, the others wait. measure() must not call this table.
  ConvAlgorithm choose(const std::string& key, const std::function<Measured()>& measure);

  // Says that Winograd's algorithm cannot compute the pass named `key`. Where the table has it computed so, as a
  // checkpoint from another machine may, the table has direct from now on.
  void has_no_winograd(const std::string& key);

  // What was measured or preloaded so far, key -> "direct" | "winograd".
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

  // In order of keys; and as lines for the log, "KEY: winograd (direct 46.01 ms, winograd 27.72 ms, error
  // 1e-06)".
  std::vector<Choice> choices() const;
  std::vector<std::string> report() const;
  // What was asked for and is not to be had on this machine, a line each.
  std::vector<std::string> warnings() const;

 private:
  bool misses_winograd() const { return missed_ && !no_winograd_.empty(); }

  const std::string no_winograd_;
  mutable std::mutex mutex_;  // held while measuring, too
  ConvAlgorithm mode_ = ConvAlgorithm::kAuto;
  std::map<std::string, Choice> table_;
  std::map<std::string, ConvAlgorithm> all_teams_;  // by geometry
  bool missed_ = false;                             // a pass without a kernel for Winograd's algorithm was met
  int replaced_ = 0;                                // choices of Winograd that has_no_winograd() made direct
  bool follows_ = false;                            // see follow()
};

}  // namespace owt
