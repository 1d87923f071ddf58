// How long one rank computes: seconds by layer, from measurements or from what a device could do at best.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/parallel/plan.h"

namespace owt {

// Layers by their index in the plan, which is the same for all plans of a model. `rows`: of the batch the layer sees.
// `part`: the share of the layer's work that the rank does, in (0, 1].
class ComputeModel {
 public:
  virtual ~ComputeModel() = default;
  virtual double forward(size_t layer, double rows, double part) const = 0;
  virtual double backward(size_t layer, double rows, double part) const = 0;  // of a dense layer, dx is half of it
  virtual double update(size_t layer, double part) const = 0;                 // of a part of the parameters
  virtual double loss(double rows) const = 0;                                 // with its gradient
  virtual double rest() const = 0;                                            // of a step: what belongs to nothing else
  virtual std::string text() const = 0;                                       // where the times come from, for people
};

// Measured times.
struct LayerSample {
  double rows = 0, part = 1;
  double forward_s = 0, backward_s = 0, update_s = 0;
};
struct ComputeSamples {
  std::vector<std::vector<LayerSample>> layers;  // of each layer, at one or more numbers of rows
  std::vector<std::pair<double, double>> loss;   // rows, seconds
  double rest_s = 0;
  std::string source;  // for people
};
// Times grow linearly between numbers of rows that were measured, and on as at the ends; with one of them, in
// proportion to the rows. A part of a layer takes that part of the time. Throws Error where a layer has no sample.
std::unique_ptr<ComputeModel> measured_compute(ComputeSamples samples);

// What a device does per second at best, and what share of that is reached.
struct DeviceSpeed {
  std::string name;
  double bf16_flops = 0, tf32_flops = 0, fp32_flops = 0;  // per second, dense; 0: it has no such products
  double bytes_per_s = 0;                                 // of its memory
  double warp_instructions_per_s = 0;                     // that its multiprocessors can issue
  double flop_share = 0.60, byte_share = 0.85;            // reached; assumed, not measured
  double link_bytes_per_s = 0, link_latency_s = 0;        // of collectives with its neighbours in a host

  double flops(Precision precision) const;  // per second; throws Error where it has none
};
// One of device_names(); case does not matter. Throws Error with the list.
DeviceSpeed device_speed(const std::string& name);
std::vector<std::string> device_names();

// Floors: every launch of a step (step_launches.h) takes max(flops / (peak * flop_share),
// bytes / (memory * byte_share)). A launch of several layers counts for one of them: what masks by a relu for the relu,
// what goes through a pool for the pool. The precision is that of activations and of the factors of products. Source:
// Williams et al. 2009, "Roofline: An Insightful Visual Performance Model for Multicore Architectures".
std::unique_ptr<ComputeModel> device_compute(const DeviceSpeed& speed, const Model& model, Precision precision);

// The times of another model, all of them so many times as long, for one who knows how long a whole step takes. text:
// where that is from.
std::unique_ptr<ComputeModel> scaled_compute(std::unique_ptr<ComputeModel> model, double factor, std::string text);

}  // namespace owt
