#include <algorithm>
#include <map>
#include <numeric>

#include "src/predict/step_launches.h"
#include "src/system/log.h"

namespace owt {
namespace {

// The fractions of the memory bandwidth and of the GPU's instruction rate that are reached; the time from one launch to
// the next; and the shortest launch.
constexpr double kByteShare = 0.95, kIssueShare = 0.70, kBetween = 1.3e-6, kLeast = 1.5e-6;

// The fraction of the peak that products reach: cuDNN's convolutions at few and at many rows; convolutions over blocks
// of pixels, which have few outputs; and cuBLASLt's products. Gradients of weights have fewer and longer sums.
constexpr double kFewRows = 512, kConvolution[] = {0.62, 0.78}, kBlocks[] = {0.42, 0.50}, kConvolutionGradient = 0.92,
                 kDense = 0.75, kDenseGradient = 0.70;

double product_share(const StepLaunch& launch, double rows) {
  if (launch.kind == LaunchKind::kDense) return launch.weight_gradient ? kDenseGradient : kDense;
  const size_t many = rows >= kFewRows ? 1 : 0;
  const double share = launch.blocks ? kBlocks[many] : kConvolution[many];
  return launch.weight_gradient ? share * kConvolutionGradient : share;
}

// For the gradient of a convolution's weights, cuDNN's fastest plans split the sum and add the parts in a second
// launch.
int launches_in(const StepLaunch& launch) {
  return launch.kind == LaunchKind::kConvolution && launch.weight_gradient ? 2 : 1;
}

StepEstimate::Launch timed(const StepLaunch& launch, const DeviceSpeed& speed, double peak, double rows) {
  const std::pair<double, const char*> bounds[] = {
      {launch.flops * rows / (peak * product_share(launch, rows)), "flops"},
      {launch.bytes(rows) / (speed.bytes_per_s * kByteShare), "bytes"},
      {launch.warp_instructions * rows / (speed.warp_instructions_per_s * kIssueShare), "issue"},
      {kLeast, "launch"}};
  const auto longest = *std::max_element(std::begin(bounds), std::end(bounds));
  return {launch, longest.first + kBetween * launches_in(launch), longest.second};
}

double sum(const std::vector<StepEstimate::Launch>& launches, const std::function<bool(const StepLaunch&)>& counts) {
  return std::accumulate(launches.begin(), launches.end(), 0.0, [&](double total, const StepEstimate::Launch& each) {
    return counts(each.launch) ? total + each.seconds : total;
  });
}

std::string line(size_t number, const StepEstimate::Launch& each, double rows) {
  const StepLaunch& l = each.launch;
  return format("{:>3}  {:<20} {:<9} {:<22} {:>9.3f} {:>9.3f} {:>9.1f}  {}{}\n", number, l.name, name_of(l.phase),
                l.kernel, l.flops * rows / 1e9, l.bytes(rows) / 1e6, each.seconds * 1e6, each.bound,
                l.beside ? ", overlaps the next ones" : "");
}

}  // namespace

double StepEstimate::seconds() const {
  return sum(launches, [](const StepLaunch&) { return true; });
}
double StepEstimate::beside_seconds() const {
  return sum(launches, [](const StepLaunch& launch) { return launch.beside; });
}

std::string StepEstimate::table() const {
  std::string text = format("Launches of one step of {} rows of {} on one {}\n", rows, model, device);
  text += format("{:>3}  {:<20} {:<9} {:<22} {:>9} {:>9} {:>9}  {}\n", "nr", "layer", "phase", "kernel", "GFLOP", "MB",
                 "us", "bound by");
  std::map<LaunchKind, std::pair<int, double>> kinds;
  for (size_t i = 0; i < launches.size(); ++i) {
    text += line(i + 1, launches[i], static_cast<double>(rows));
    auto& [count, of_kind] = kinds[launches[i].launch.kind];
    ++count;
    of_kind += launches[i].seconds;
  }
  for (const auto& [kind, of_kind] : kinds)
    text += format("{:<20} {:>3} launches {:>10.1f} us {:>5.1f} %\n", name_of(kind), of_kind.first,
                   of_kind.second * 1e6, 100 * of_kind.second / seconds());
  text += format("step: {:.3f} ms, {:.0f} images/s, {} launches; the roofline limit of {:.3f} ms is {:.0f} % of it",
                 seconds() * 1e3, images_per_second(), launches.size(), floor_seconds * 1e3,
                 100 * floor_seconds / seconds());
  if (const double beside = beside_seconds(); beside > 0)
    text += format("; {:.3f} ms may overlap other launches", beside * 1e3);
  return text + "\n" + assumptions;
}

StepEstimate estimate_step(const DeviceSpeed& speed, const Model& model, const Plan& plan) {
  const double peak = speed.flops(plan.request.on.precision);
  const auto rows = static_cast<double>(plan.request.step_rows);
  StepEstimate estimate;
  estimate.model = model.name;
  estimate.device = speed.name;
  estimate.rows = plan.request.step_rows;
  for (const StepLaunch& launch : launches_of_step(model, plan)) {
    estimate.launches.push_back(timed(launch, speed, peak, rows));
    estimate.floor_seconds += std::max(launch.flops * rows / peak, launch.bytes(rows) / speed.bytes_per_s);
  }
  estimate.assumptions = format(
      "This is a model, not a measurement: {} at {:.2f} TB/s and {:.0f} TFLOP/s, of which convolutions reach {:.2f} "
      "({:.2f} from {:.0f} rows on; over blocks {:.2f}, {:.2f}), gradients of their weights {:.2f} of that,\ndense "
      "products {:.2f}, gradients of their weights {:.2f}; kernels issue {:.2f}e12 warp instructions/s; a launch takes "
      "{:.1f} us at least, and {:.1f} us to the next. Launches are counted one after the other.\n",
      name_of(plan.request.on.precision), speed.bytes_per_s * kByteShare / 1e12, peak / 1e12, kConvolution[0],
      kConvolution[1], kFewRows, kBlocks[0], kBlocks[1], kConvolutionGradient, kDense, kDenseGradient,
      speed.warp_instructions_per_s * kIssueShare / 1e12, kLeast * 1e6, kBetween * 1e6);
  return estimate;
}

}  // namespace owt
