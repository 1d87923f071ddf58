#include "src/predict/compute_model.h"

#include <algorithm>
#include <cctype>

#include "src/predict/launch_time.h"
#include "src/system/config.h"
#include "src/system/log.h"

namespace owt {
namespace {

using Points = std::vector<std::pair<double, double>>;  // rows, seconds of the whole layer; in order of rows

// Points at the same number of rows are averaged.
Points sorted(Points points) {
  std::sort(points.begin(), points.end());
  Points merged;
  for (size_t i = 0; i < points.size();) {
    double sum = 0;
    size_t end = i;
    for (; end < points.size() && points[end].first == points[i].first; ++end) sum += points[end].second;
    merged.emplace_back(points[i].first, sum / static_cast<double>(end - i));
    i = end;
  }
  return merged;
}

double at(const Points& points, double rows) {
  if (rows <= 0) return 0;
  const auto [first_rows, first] = points.front();
  if (points.size() == 1) return first * rows / first_rows;
  size_t i = 1;
  while (i + 1 < points.size() && points[i].first < rows) ++i;
  const auto [x0, y0] = points[i - 1];
  const auto [x1, y1] = points[i];
  // Noise must not make more rows cheaper, nor few rows cheaper than in proportion to the rows.
  const double slope = std::max(0.0, (y1 - y0) / (x1 - x0));
  if (rows < first_rows) return std::max(first - slope * (first_rows - rows), first * rows / first_rows);
  return y0 + slope * (rows - x0);
}

class Measured : public ComputeModel {
 public:
  explicit Measured(const ComputeSamples& samples) : rest_(samples.rest_s), source_(samples.source) {
    for (const auto& of_layer : samples.layers) {
      OWT_CHECK(!of_layer.empty());
      Points forward, backward, update;
      for (const LayerSample& sample : of_layer) {
        OWT_CHECK(sample.rows > 0 && sample.part > 0);
        forward.emplace_back(sample.rows, sample.forward_s / sample.part);
        backward.emplace_back(sample.rows, sample.backward_s / sample.part);
        update.emplace_back(0, sample.update_s / sample.part);
      }
      forward_.push_back(sorted(forward));
      backward_.push_back(sorted(backward));
      update_.push_back(sorted(update).front().second);
    }
    loss_ = sorted(samples.loss);
  }

  double forward(size_t layer, double rows, double part) const override { return part * at(forward_.at(layer), rows); }
  double backward(size_t layer, double rows, double part) const override {
    return part * at(backward_.at(layer), rows);
  }
  double update(size_t layer, double part) const override { return part * update_.at(layer); }
  double loss(double rows) const override { return loss_.empty() ? 0 : at(loss_, rows); }
  double rest() const override { return rest_; }
  std::string text() const override { return source_; }

 private:
  std::vector<Points> forward_, backward_;
  std::vector<double> update_;
  Points loss_;
  double rest_;
  std::string source_;
};

class DeviceTimes : public ComputeModel {
 public:
  DeviceTimes(const DeviceSpeed& speed, const Model& model, Precision precision)
      : speed_(speed), precision_(precision) {
    // The prices are for strategies whose ranks add up gradients too.
    const Plan plan = make_plan(model, {.on = {Device::kCuda, precision}, .keeps_gradients = true});
    forward_.resize(plan.layers.size());
    backward_.resize(plan.layers.size());
    for (StepLaunch& launch : launches_of_step(model, plan)) {
      if (launch.phase == Phase::kLoss) {
        loss_.push_back(launch);
        continue;
      }
      if (launch.layer < 0) {
        launch.weight_bytes = 0;  // update() has their time
        rest_ += seconds({launch}, 1, 1);
        continue;
      }
      auto& of_phase = launch.phase == Phase::kForward ? forward_ : backward_;
      of_phase[static_cast<size_t>(launch.layer)].push_back(std::move(launch));
    }
    for (size_t i = 0; i < plan.layers.size(); ++i)
      update_bytes_.push_back(update_bytes(plan, static_cast<int64_t>(i)));
    text_ = format("{} of one {} in {} at {:.3g} TFLOP/s and {:.3g} TB/s",
                   speed.multiprocessors > 0 ? "a model" : "roofline limits", speed.name, name_of(precision),
                   speed.flops(precision) * speed.flop_share / 1e12, speed.bytes_per_s * speed.byte_share / 1e12);
  }

  double forward(size_t layer, double rows, double part) const override {
    return seconds(forward_.at(layer), rows, part);
  }
  double backward(size_t layer, double rows, double part) const override {
    return seconds(backward_.at(layer), rows, part);
  }
  double update(size_t layer, double part) const override {
    return update_bytes_.at(layer) * part / (speed_.bytes_per_s * speed_.byte_share);
  }
  double loss(double rows) const override { return seconds(loss_, rows, 1); }
  double rest() const override { return rest_; }
  std::string text() const override { return text_; }

 private:
  double seconds(const std::vector<StepLaunch>& launches, double rows, double part) const {
    double sum = 0;
    if (rows <= 0) return 0;
    for (const StepLaunch& launch : launches) sum += launch_time(launch, speed_, precision_, rows, part).seconds;
    return sum;
  }

  DeviceSpeed speed_;
  Precision precision_;
  std::vector<std::vector<StepLaunch>> forward_, backward_;  // by layer
  std::vector<StepLaunch> loss_;
  std::vector<double> update_bytes_;
  double rest_ = 0;
  std::string text_;
};

// The times of another model, multiplied by a factor.
class Scaled : public ComputeModel {
 public:
  Scaled(std::unique_ptr<ComputeModel> model, double factor, std::string text)
      : model_(std::move(model)), factor_(factor), text_(std::move(text)) {}

  double forward(size_t layer, double rows, double part) const override {
    return factor_ * model_->forward(layer, rows, part);
  }
  double backward(size_t layer, double rows, double part) const override {
    return factor_ * model_->backward(layer, rows, part);
  }
  double update(size_t layer, double part) const override { return factor_ * model_->update(layer, part); }
  double loss(double rows) const override { return factor_ * model_->loss(rows); }
  double rest() const override { return factor_ * model_->rest(); }
  std::string text() const override { return text_; }

 private:
  std::unique_ptr<ComputeModel> model_;
  double factor_;
  std::string text_;
};

// H200: tensor cores and memory are assumed to give 790 TFLOP/s and 4.3 TB/s, not the data sheet's 989 TFLOP/s and 4.8
// TB/s. The NVLink rate is what NVIDIA states for NCCL in issue 212 of nccl-tests. H100: the same chip with the
// bandwidth of its own memory. The other values are from data sheets: dense tensor-core rates with f32 sums, 0 in a
// precision without such products (bf16 and tf32 before Ampere). As on the H200, 80 % of these rates (790 of 989
// TFLOP/s) and 85 % of the bandwidths (95 % of 4.3 of 4.8 TB/s) are assumed to be reached. The instruction rate is
// multiprocessors x schedulers (four; two on P100) x boost clock. None of these values was measured by this project.
//   B200: NVIDIA Blackwell architecture brief, HGX B200 at 1000 W; 148 multiprocessors
//   RTX3090: NVIDIA Ampere GA102 architecture whitepaper, appendix A
//   V100, P100: NVIDIA's data sheets of the cards for NVLink (SXM2)
//   K20: NVIDIA's board specification BD-06499-001; PCI Express 2.0 carries "about 6 GB/s" by Krizhevsky 2014
// The NVLink rate of the A100 was observed with nccl-tests, 235 of 300 GB/s in each direction; the same fraction is
// assumed for B200, V100 and P100. Cards on PCI Express 4.0 are assumed to reach 20 of its 32 GB/s.
const std::vector<DeviceSpeed> kDevices = {
    // name, flops in bf16, tf32, fp32, memory bandwidth, multiprocessors, warp instructions, link bandwidth, latency,
    // shares, early starts
    {"H200", 790e12, 395e12, 67e12, 4.3e12, 132, 132 * 4 * 1.755e9, 370e9, 12e-6, 1, 0.95, true},
    {"H100", 790e12, 395e12, 67e12, 3.0e12, 132, 132 * 4 * 1.755e9, 370e9, 12e-6, 1, 0.95, true},
    {"A100", 312e12, 156e12, 19.5e12, 2.039e12, 108, 108 * 4 * 1.41e9, 235e9},
    {"L40S", 362e12, 183e12, 91.6e12, 0.864e12, 142, 142 * 4 * 2.52e9, 20e9},
    {"RTX4090", 165.2e12, 82.6e12, 82.6e12, 1.008e12, 128, 128 * 4 * 2.52e9, 20e9},
    {"B200", 2250e12, 1100e12, 80e12, 8e12, 148, 148 * 4 * 1.965e9, 705e9, 12e-6, 0.80, 0.85, true},
    {"RTX3090", 71e12, 35.6e12, 35.6e12, 0.936e12, 82, 82 * 4 * 1.695e9, 20e9},
    {"V100", 0, 0, 15.7e12, 0.9e12, 80, 80 * 4 * 1.53e9, 117e9},
    {"P100", 0, 0, 10.6e12, 0.732e12, 56, 56 * 2 * 1.48e9, 63e9},
    {"K20", 0, 0, 3.52e12, 0.208e12, 13, 13 * 4 * 0.706e9, 6e9},
};

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

}  // namespace

std::unique_ptr<ComputeModel> measured_compute(ComputeSamples samples) { return std::make_unique<Measured>(samples); }

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const DeviceSpeed& device : kDevices) names.push_back(device.name);
  return names;
}

DeviceSpeed device_speed(const std::string& name) {
  for (const DeviceSpeed& device : kDevices)
    if (device.name == upper(name)) return device;
  const std::string near = nearest(upper(name), device_names());
  fail("no figures for a GPU '", name, "' (there are ", joined(device_names()), ")",
       near.empty() ? "" : concat("; did you mean '", near, "'?"));
}

double DeviceSpeed::flops(Precision precision) const {
  const double found = precision == Precision::kBf16   ? bf16_flops
                       : precision == Precision::kTf32 ? tf32_flops
                                                       : fp32_flops;
  if (found == 0) fail("a ", name, " has no products in ", name_of(precision), "; wanted another precision, as fp32");
  return found;
}

std::unique_ptr<ComputeModel> scaled_compute(std::unique_ptr<ComputeModel> model, double factor, std::string text) {
  return std::make_unique<Scaled>(std::move(model), factor, std::move(text));
}

std::unique_ptr<ComputeModel> device_compute(const DeviceSpeed& speed, const Model& model, Precision precision) {
  return std::make_unique<DeviceTimes>(speed, model, precision);
}

}  // namespace owt
