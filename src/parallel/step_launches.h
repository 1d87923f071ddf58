// Everything that one GPU which trains alone is given to do in a training step, launch by launch and in the order of a
// recorded step, and how long that takes by a model of the GPU. Tests hold the list against recorded steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/profiler.h"
#include "src/parallel/compute_model.h"
#include "src/parallel/plan.h"

namespace owt {

constexpr int kParamsPerUpdate = 48;  // that one launch updates: the parameters of a kernel may take 4 KB

// What a launch belongs to in sums.
enum class LaunchKind { kConvolution, kDense, kPool, kElements, kNorm, kPacking, kLoss, kUpdate, kCopy };
const char* name_of(LaunchKind kind);

struct StepLaunch {
  int64_t layer = -1;  // in the plan; -1: it belongs to no layer
  std::string name{};  // of the layer, or of an inner layer of it; "loss", "weights", "step"
  Phase phase = Phase::kForward;
  std::string kernel{};  // as the node of a recorded step is called: a kernel, or the call that queues it
  LaunchKind kind = LaunchKind::kElements;
  double flops = 0;              // per row
  double in_bytes = 0;           // per row, whatever the part of the layer
  double out_bytes = 0;          // per row, of the whole layer
  double weight_bytes = 0;       // whatever the rows, of the whole layer
  double warp_instructions = 0;  // per row; 0: so few that memory is slower
  bool blocks = false;           // a convolution over packed blocks of pixels, which fills tensor cores less
  bool weight_gradient = false;  // a product that gives it
  bool beside = false;           // it runs beside what follows

  double bytes(double rows, double part = 1) const {
    return in_bytes * rows + part * (out_bytes * rows + weight_bytes);
  }
};

// The plan must be for one rank. Where the GPU chooses by measuring, the list has what is expected to win: convolutions
// with bias and relu in them; of at most 4 channels, packed ones over blocks where they have a stride and over eight
// channels where not, on images that come packed; batch norm by kernels of our own.
std::vector<StepLaunch> launches_of_step(const Model& model, const Plan& plan);
// Memory that the update of a layer's parameters reads and writes.
double update_bytes(const Plan& plan, int64_t layer);

// The launches of a step of so many rows by this model: a launch takes the longest of its products, its memory traffic
// and its instructions, each at the share of the GPU's peak that such kernels were seen to reach elsewhere, and what a
// launch costs besides.
struct StepEstimate {
  struct Launch {
    StepLaunch launch;
    double seconds = 0;
    const char* bound = "";  // "flops", "bytes", "issue", "launch"
  };
  std::string model, device;
  int64_t rows = 0;
  std::vector<Launch> launches;
  double floor_seconds = 0;  // of all launches at the peak, without what a launch costs besides
  std::string assumptions;   // for people; two lines

  double seconds() const;         // one after the other
  double beside_seconds() const;  // of that, beside other launches
  double images_per_second() const { return static_cast<double>(rows) / seconds(); }
  std::string table() const;
};
StepEstimate estimate_step(const DeviceSpeed& speed, const Model& model, const Plan& plan);

}  // namespace owt
