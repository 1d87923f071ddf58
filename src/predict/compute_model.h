// The computation time of one rank: seconds by layer, from measurements or from a model of a device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/net/model.h"

namespace owt {

// layer: index in the plan, which is the same for all plans of a model. rows: of the layer's batch. part: the fraction
// of the layer's work that the rank does, in (0, 1].
class ComputeModel {
 public:
  virtual ~ComputeModel() = default;
  virtual double forward(size_t layer, double rows, double part) const = 0;
  virtual double backward(size_t layer, double rows, double part) const = 0;  // for a dense layer, dx takes half of it
  virtual double update(size_t layer, double part) const = 0;  // time for this fraction of the parameters
  virtual double loss(double rows) const = 0;                  // with its gradient
  virtual double rest() const = 0;                             // time of a step outside of layers, loss and updates
  virtual std::string text() const = 0;                        // the source of the times, for people
};

// Measured times.
struct LayerSample {
  double rows = 0, part = 1;
  double forward_s = 0, backward_s = 0, update_s = 0;
};
struct ComputeSamples {
  std::vector<std::vector<LayerSample>> layers;  // for each layer, at one or more numbers of rows
  std::vector<std::pair<double, double>> loss;   // rows, seconds
  double rest_s = 0;
  std::string source;  // for people
};
// Times are interpolated linearly between measured numbers of rows, and extrapolated in the same way. With a single
// number of rows they are proportional. Part of a layer takes the same part of its time. Throws Error if a layer has no
// sample.
std::unique_ptr<ComputeModel> measured_compute(ComputeSamples samples);

// The peak rates of a device, and the fractions of them that its best kernels reach.
struct DeviceSpeed {
  std::string name;
  double bf16_flops = 0, tf32_flops = 0, fp32_flops = 0;  // per second, dense; 0: the device has no such products
  double bytes_per_s = 0;                                 // memory bandwidth
  int multiprocessors = 0;                                // 0: a processor
  double warp_instructions_per_s = 0;                     // issue rate of all multiprocessors
  double link_bytes_per_s = 0, link_latency_s = 12e-6;    // collectives with its neighbours in a host
  double flop_share = 0.80, byte_share = 0.85;            // assumed, not measured
  bool starts_early = false;  // from compute capability 9.0 on: a kernel may start while the one before it runs

  double flops(Precision precision) const;  // per second; throws Error if the device has no such products
};
// One of device_names(), in upper or lower case. Throws Error with the list.
DeviceSpeed device_speed(const std::string& name);
std::vector<std::string> device_names();

// The times of the launches of a step (step_launches.h) by launch_time.h. A launch for several layers counts for one of
// them: masking by a relu counts for the relu, a pass through a pool for the pool. The precision is the type of
// activations and of product factors. For a processor the times are roofline limits.
// Source: Williams et al. 2009, "Roofline: An Insightful Visual Performance Model for Multicore Architectures".
std::unique_ptr<ComputeModel> device_compute(const DeviceSpeed& speed, const Model& model, Precision precision);

// The times of another model multiplied by a factor, for a device whose step time is known. text: the source of the
// factor.
std::unique_ptr<ComputeModel> scaled_compute(std::unique_ptr<ComputeModel> model, double factor, std::string text);

}  // namespace owt
