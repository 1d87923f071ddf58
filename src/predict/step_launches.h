// All launches on one GPU that trains alone, in the order of a recorded step, and their duration by a model of the GPU.
// Tests compare the list with recorded steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/profiler.h"
#include "src/plan/plan.h"
#include "src/predict/compute_model.h"

namespace owt {

// The category of a launch in sums.
enum class LaunchKind { kConvolution, kDense, kPool, kElements, kNorm, kPacking, kLoss, kUpdate, kCopy };
const char* name_of(LaunchKind kind);

struct StepLaunch {
  int64_t layer = -1;  // index in the plan; -1: no layer
  std::string name{};  // name of the layer or an inner layer; "loss", "weights", "step"
  Phase phase = Phase::kForward;
  std::string kernel{};  // the name of the node in a recorded step: a kernel, or the call that queues it
  LaunchKind kind = LaunchKind::kElements;
  double flops = 0;              // per row
  double in_bytes = 0;           // per row, independent of the part of the layer
  double out_bytes = 0;          // per row, of the whole layer
  double weight_bytes = 0;       // independent of rows, of the whole layer
  double warp_instructions = 0;  // per row; 0: memory traffic takes longer in any case
  // A convolution is `groups` matrix products with results of height x width. The height is per row, unless the product
  // is a weight gradient.
  double height = 0, width = 0, groups = 1;
  bool weight_gradient = false;  // a product that computes it
  // Products of 16 x 16 and 16 x 8 factors, per row, if a kernel of our own may compute the convolution
  // (layers/gpu/small_conv.h); else 0.
  double own_products = 0;
  bool beside = false;  // runs beside later launches
  bool early = false;   // may start while the launch before it in its stream runs (src/core/launch.cuh)

  double bytes(double rows, double part = 1) const {
    return in_bytes * rows + part * (out_bytes * rows + weight_bytes);
  }
};

// The plan must be for one rank, on any device. Where the GPU chooses by measuring, the list has the expected choice.
// Convolutions have fused bias and relu; in bf16, without groups and with multiples of 4 channels, they also mask and
// sum dx for a convolution and relu before them. For at most 4 channels they are packed: over blocks if they have a
// stride, else over eight channels on packed images. Batch norm uses the project's own kernels.
// convs_mask_dx = false: those masks and sums are kernels of their own.
std::vector<StepLaunch> launches_of_step(const Model& model, Plan plan, bool convs_mask_dx = true);
// Bytes that the update of a layer's parameters reads and writes.
double update_bytes(const Plan& plan, int64_t layer);

// The predicted launches of a step (launch_time.h).
struct StepEstimate {
  struct Launch {
    StepLaunch launch;
    double seconds = 0;
    const char* bound = "";  // the limit: "flops", "bytes", "issue", "launch"
    double own_seconds = 0;  // our own kernel, if it is faster; else 0. seconds() does not count it
  };
  std::string model, device;
  int64_t rows = 0;
  std::vector<Launch> launches;
  double floor_seconds = 0;  // roofline limit: all launches at the peak, without launch costs
  std::string assumptions;   // for people; two lines

  double seconds() const;           // the sum of all launches
  double beside_seconds() const;    // time of launches that run beside others
  double own_gain_seconds() const;  // our own kernels make the step as much shorter
  double images_per_second() const { return static_cast<double>(rows) / seconds(); }
  std::string table() const;
};
StepEstimate estimate_step(const DeviceSpeed& speed, const Model& model, const Plan& plan, bool convs_mask_dx = true);

}  // namespace owt
