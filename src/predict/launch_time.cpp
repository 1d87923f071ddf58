#include "src/predict/launch_time.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/system/log.h"

namespace owt {
namespace {

// The fraction of the GPU's instruction rate that is reached; the time from one launch to the next; the shortest
// launch; and the part of a convolution's time that does not depend on its size.
constexpr double kIssueShare = 0.70, kBetween = 1.3e-6, kLeast = 1.5e-6, kEachConvolution = 14e-6;

// The time before a kernel that may start early. Such starts saved 0.96 us between two empty kernels (issue 569 of
// pegainfer-project/pegainfer, "empty pair, isolated"). Only short kernels let the next one start before their end
// (kFewBlocks in src/core/launch.cuh), so about half of it is counted.
constexpr double kBetweenEarly = 0.8e-6;

// The fraction of the device's speed that cuBLASLt's products reach, its gradients of weights, and gradients that the
// update's kernel computes. The last one is assumed.
constexpr double kDense = 0.75, kDenseGradient = 0.70, kGradientInUpdate = 0.35;

// The outputs of a tile on each side. The product of two sides is at most kLargestTile.
constexpr double kSides[] = {32, 64, 128, 192, 256}, kLargestTile = 256 * 128, kLargestSides = 256 + 128;

double flops_of(const DeviceSpeed& speed, Precision precision) { return speed.flops(precision) * speed.flop_share; }
double bytes_of(const DeviceSpeed& speed) { return speed.bytes_per_s * speed.byte_share; }
double issue_of(const DeviceSpeed& speed) { return speed.warp_instructions_per_s * kIssueShare; }

double tiled_seconds(const StepLaunch& launch, const DeviceSpeed& speed, double flops_per_s, double rows, double part) {
  const double height = launch.height * (launch.weight_gradient ? part : rows);
  const double width = launch.width * (launch.phase == Phase::kForward ? part : 1);
  const double depth = launch.flops * rows * part / (2 * height * width * launch.groups);
  const double sum_s = 2 * sizeof(float) * height * width * launch.groups / bytes_of(speed);
  const double for_factor_s = 2 * kLargestTile / kLargestSides * speed.multiprocessors / flops_per_s;
  double least = std::numeric_limits<double>::infinity();
  for (const double m : kSides)
    for (const double n : kSides) {
      if (m * n > kLargestTile) continue;
      const double tiles = launch.groups * std::ceil(height / m) * std::ceil(width / n);
      for (int parts = 1; parts <= speed.multiprocessors; parts *= 2) {
        const double waves = std::ceil(tiles * parts / speed.multiprocessors);
        least = std::min(least, waves * (m + n) * depth / parts * for_factor_s + (parts > 1 ? parts * sum_s : 0));
      }
    }
  return least;
}

double product_seconds(const StepLaunch& launch, const DeviceSpeed& speed, Precision precision, double rows,
                       double part) {
  const double flops_per_s = flops_of(speed, precision);
  if (launch.kind == LaunchKind::kConvolution) return tiled_seconds(launch, speed, flops_per_s, rows, part);
  const double share = launch.kind == LaunchKind::kUpdate ? kGradientInUpdate
                       : launch.weight_gradient           ? kDenseGradient
                                                          : kDense;
  return launch.flops * rows * part / (flops_per_s * share);
}

// For the gradient of a convolution's weights, cuDNN's fastest plans split the sum and add the parts in a second
// launch.
double fixed_seconds(const StepLaunch& launch, const DeviceSpeed& speed) {
  if (launch.early && speed.starts_early) return kBetweenEarly;
  if (launch.kind != LaunchKind::kConvolution) return kBetween;
  return kEachConvolution + kBetween * (launch.weight_gradient ? 2 : 1);
}

}  // namespace

LaunchTime launch_time(const StepLaunch& launch, const DeviceSpeed& speed, Precision precision, double rows,
                       double part) {
  const LaunchTime bytes{launch.bytes(rows, part) / bytes_of(speed), "bytes"};
  const auto shorter = [](const LaunchTime& a, const LaunchTime& b) { return a.seconds < b.seconds; };
  if (speed.multiprocessors == 0)
    return std::max<LaunchTime>({launch.flops * rows * part / flops_of(speed, precision), "flops"}, bytes, shorter);
  LaunchTime time = std::max<LaunchTime>({{product_seconds(launch, speed, precision, rows, part), "flops"},
                                          bytes,
                                          {launch.warp_instructions * rows * part / issue_of(speed), "issue"},
                                          {kLeast, "launch"}},
                                         shorter);
  time.seconds += fixed_seconds(launch, speed);
  return time;
}

// A multiprocessor computes an image at a time. It loads 128 bytes a clock from shared memory, and issues four
// instructions a clock. A warp computes 2 x 4 products of 16 x 16 and 16 x 8 factors side by side, so it loads 256
// bytes for each.
double own_launch_seconds(const StepLaunch& launch, const DeviceSpeed& speed, double rows) {
  const double clocks_per_s = speed.warp_instructions_per_s / 4;  // all multiprocessors together
  const double images = std::ceil(rows / speed.multiprocessors) * speed.multiprocessors;
  const double products_s = images * launch.own_products * 256 / 128 / clocks_per_s;
  return std::max({products_s, launch.bytes(rows) / bytes_of(speed), kLeast}) + kBetween;
}

std::string launch_assumptions(const DeviceSpeed& speed, Precision precision) {
  return format(
      "This is a model, not a measurement: {} at {:.2f} TB/s and {:.0f} TFLOP/s. {} multiprocessors compute "
      "convolutions in tiles of up to 256 x 128 outputs; each takes {:.0f} us more;\ndense products reach {:.2f} of "
      "the peak, gradients of their weights {:.2f}, or {:.2f} in the update; kernels issue {:.2f}e12 warp "
      "instructions/s; a launch takes {:.1f} us at least, and {:.1f} us to the next{}. Launches are counted one after "
      "the other.\n",
      name_of(precision), bytes_of(speed) / 1e12, flops_of(speed, precision) / 1e12, speed.multiprocessors,
      kEachConvolution * 1e6, kDense, kDenseGradient, kGradientInUpdate, issue_of(speed) / 1e12, kLeast * 1e6,
      kBetween * 1e6,
      speed.starts_early ? format(", or {:.1f} us between two of owt's kernels", kBetweenEarly * 1e6) : "");
}

}  // namespace owt
