#include <algorithm>
#include <map>
#include <numeric>

#include "src/predict/launch_time.h"
#include "src/system/log.h"

namespace owt {
namespace {

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

double StepEstimate::own_gain_seconds() const {
  return std::accumulate(launches.begin(), launches.end(), 0.0, [](double total, const Launch& each) {
    return each.own_seconds > 0 ? total + each.seconds - each.own_seconds : total;
  });
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
  text += "\n" + assumptions;
  if (const double gain = own_gain_seconds(); gain > 0)
    text += format(
        "Not counted: where a GPU measures owt's own kernels for few channels to be faster, it uses them. By a model "
        "of "
        "their own, in\nwhich they are bound by shared memory, the step is {:.3f} ms shorter.\n",
        gain * 1e3);
  return text;
}

StepEstimate estimate_step(const DeviceSpeed& speed, const Model& model, const Plan& plan, bool convs_mask_dx) {
  const Precision precision = plan.request.on.precision;
  const auto rows = static_cast<double>(plan.request.step_rows);
  StepEstimate estimate;
  estimate.model = model.name;
  estimate.device = speed.name;
  estimate.rows = plan.request.step_rows;
  for (const StepLaunch& launch : launches_of_step(model, plan, convs_mask_dx)) {
    const LaunchTime time = launch_time(launch, speed, precision, rows);
    const double own =
        launch.own_products > 0 && speed.multiprocessors > 0 ? own_launch_seconds(launch, speed, rows) : 0;
    estimate.launches.push_back({launch, time.seconds, time.bound, own < time.seconds ? own : 0});
    estimate.floor_seconds +=
        std::max(launch.flops * rows / speed.flops(precision), launch.bytes(rows) / speed.bytes_per_s);
  }
  estimate.assumptions = launch_assumptions(speed, precision);
  return estimate;
}

}  // namespace owt
