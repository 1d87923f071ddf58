// The modelled time of a kernel launch.
#pragma once

#include <string>

#include "src/predict/step_launches.h"

namespace owt {

struct LaunchTime {
  double seconds = 0;
  const char* bound = "";  // the limit: "flops", "bytes", "issue", "launch"
};

// On a GPU: the longest of product, memory traffic and instructions at the fractions of the device's rates that are
// reached, and the cost of a launch. On a processor: the longer of product and memory traffic. part: the fraction of
// the layer's outputs, in (0, 1].
//
// A convolution is a matrix product in tiles. The multiprocessors compute one tile each at a time, so the product takes
// as long as its waves of tiles, and an incomplete last wave as long as a complete one. A tile of m x n outputs loads
// m + n factors for m * n products. So its speed is taken to be proportional to mn / (m + n), and the largest tile, 256
// x 128, to reach the speed of the device. If there are few tiles, the sums may be split into parts, which are written
// and added. The fastest way counts. Every convolution takes a constant time in addition, kEachConvolution. It is the
// only constant that was fitted to a measured step: to the step of cifar10_quick (docs/measurements/gpu_speed.md).
LaunchTime launch_time(const StepLaunch& launch, const DeviceSpeed& speed, Precision precision, double rows,
                       double part = 1);
// The time of a kernel of our own for a convolution with own_products. It loads its factors from shared memory.
double own_launch_seconds(const StepLaunch& launch, const DeviceSpeed& speed, double rows);
// The constants of the model on a GPU, for people; two lines.
std::string launch_assumptions(const DeviceSpeed& speed, Precision precision);

}  // namespace owt
