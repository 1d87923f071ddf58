#include "src/parallel/compute_model.h"

#include <algorithm>
#include <cctype>

#include "src/core/config.h"
#include "src/core/log.h"

namespace owt {
namespace {

using Points = std::vector<std::pair<double, double>>;  // rows, seconds of the whole layer; rows ascending

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
  // Noise must not make more rows cheaper, nor few rows cheaper than in proportion.
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

struct Kernel {
  double flops = 0;         // per row
  double in_bytes = 0;      // per row, whatever the part
  double out_bytes = 0;     // per row, of the whole layer
  double weight_bytes = 0;  // whatever the rows, of the whole layer
};

class DeviceFloors : public ComputeModel {
 public:
  DeviceFloors(const DeviceSpeed& speed, const Plan& plan) : speed_(speed) {
    const Precision precision = plan.request.on.precision;
    peak_ = precision == Precision::kBf16   ? speed.bf16_flops
            : precision == Precision::kTf32 ? speed.tf32_flops
                                            : speed.fp32_flops;
    const double size = static_cast<double>(size_of(activation_type(precision)));
    for (size_t i = 0; i < plan.layers.size(); ++i) {
      Kernels kernels = kernels_of(plan.layers, i, size);
      forward_.push_back(std::move(kernels.forward));
      backward_.push_back(std::move(kernels.backward));
      params_.push_back(static_cast<double>(plan.layers[i].weight_bytes) / 4);
    }
    loss_bytes_ = 3 * size * static_cast<double>(plan.layers.back().out.elements());
    text_ = format("floors of one {} in {} at {:.0f} % of {:.0f} TFLOP/s and {:.0f} % of {:.2f} TB/s", speed.name,
                   name_of(precision), 100 * speed.flop_share, peak_ / 1e12, 100 * speed.byte_share,
                   speed.bytes_per_s / 1e12);
  }

  double forward(size_t layer, double rows, double part) const override {
    return seconds(forward_.at(layer), rows, part);
  }
  double backward(size_t layer, double rows, double part) const override {
    return seconds(backward_.at(layer), rows, part);
  }
  double update(size_t layer, double part) const override { return bytes_seconds(20 * params_.at(layer) * part); }
  double loss(double rows) const override { return bytes_seconds(loss_bytes_ * rows); }
  double rest() const override { return 0; }
  std::string text() const override { return text_; }

 private:
  static bool multiplies(const LayerPlan& layer) { return layer.type == "conv" || layer.type == "dense"; }
  static bool pools(const LayerPlan& layer) { return layer.type == "max_pool" || layer.type == "avg_pool"; }

  struct Kernels {
    std::vector<Kernel> forward, backward;
    void add(const Kernels& more) {
      forward.insert(forward.end(), more.forward.begin(), more.forward.end());
      backward.insert(backward.end(), more.backward.begin(), more.backward.end());
    }
  };

  static Kernels kernels_of(const std::vector<LayerPlan>& layers, size_t i, double size) {
    const LayerPlan& layer = layers[i];
    const double x = size * static_cast<double>(layer.in.elements()),
                 y = size * static_cast<double>(layer.out.elements());
    const double count = static_cast<double>(layer.weight_bytes) / 4, w = size * count;
    Kernels kernels;
    auto& [forward, backward] = kernels;
    if (!layer.inner.empty()) {
      for (size_t k = 0; k < layer.inner.size(); ++k) kernels.add(kernels_of(layer.inner, k, size));
      forward.push_back({0, 0, 3 * y, 0});
      backward.push_back({0, 0, 4 * y + 3 * x, 0});
    } else if (multiplies(layer)) {
      forward.push_back({layer.flops_per_row, x, y, w});
      backward.push_back({layer.flops_per_row, x, y, w});
      if (layer.backward_flops_per_row > layer.flops_per_row)  // dx is wanted
        backward.push_back({layer.flops_per_row, x, y, w});
    } else if (layer.type == "relu") {
      if (i == 0 || !multiplies(layers[i - 1])) forward.push_back({0, 0, x + y, 0});
      if (i + 1 == layers.size() || !pools(layers[i + 1])) backward.push_back({0, 0, 3 * y, 0});
    } else if (pools(layer)) {
      const double index = y / size;
      forward.push_back({0, 0, x + y + index, 0});
      backward.push_back({0, 0, 2 * y + index + x, 0});
    } else {
      forward.push_back({layer.flops_per_row, 0, x + y, w});
      backward.push_back({layer.backward_flops_per_row, 0, 2 * y + x, w});
    }
    return kernels;
  }

  double bytes_seconds(double bytes) const { return bytes / (speed_.bytes_per_s * speed_.byte_share); }

  double seconds(const std::vector<Kernel>& kernels, double rows, double part) const {
    double sum = 0;
    if (rows <= 0) return 0;
    for (const Kernel& k : kernels)
      sum += std::max(k.flops * rows * part / (peak_ * speed_.flop_share),
                      bytes_seconds(k.in_bytes * rows + part * (k.out_bytes * rows + k.weight_bytes)));
    return sum;
  }

  DeviceSpeed speed_;
  double peak_ = 0, loss_bytes_ = 0;
  std::vector<std::vector<Kernel>> forward_, backward_;
  std::vector<double> params_;
  std::string text_;
};

// H200 as in reference performance.md 2.1 (what its tensor cores and memory were seen to give elsewhere, not the data
// sheet's 989 TFLOP/s and 4.8 TB/s) and 4.2 (NVLink, PCIe); H100 the same chip with its memory's share of bandwidth;
// the others from their data sheets: dense tensor-core rates with f32 sums.
const std::vector<DeviceSpeed>& known_devices() {
  static const std::vector<DeviceSpeed> known = {
      {.name = "H200",
       .bf16_flops = 790e12,
       .tf32_flops = 395e12,
       .fp32_flops = 67e12,
       .bytes_per_s = 4.3e12,
       .link_bytes_per_s = 370e9,
       .link_latency_s = 12e-6},
      {.name = "H100",
       .bf16_flops = 790e12,
       .tf32_flops = 395e12,
       .fp32_flops = 67e12,
       .bytes_per_s = 3.0e12,
       .link_bytes_per_s = 370e9,
       .link_latency_s = 12e-6},
      {.name = "A100",
       .bf16_flops = 312e12,
       .tf32_flops = 156e12,
       .fp32_flops = 19.5e12,
       .bytes_per_s = 2.039e12,
       .link_bytes_per_s = 235e9,
       .link_latency_s = 12e-6},
      {.name = "L40S",
       .bf16_flops = 362e12,
       .tf32_flops = 183e12,
       .fp32_flops = 91.6e12,
       .bytes_per_s = 0.864e12,
       .link_bytes_per_s = 20e9,
       .link_latency_s = 12e-6},
      {.name = "RTX4090",
       .bf16_flops = 165.2e12,
       .tf32_flops = 82.6e12,
       .fp32_flops = 82.6e12,
       .bytes_per_s = 1.008e12,
       .link_bytes_per_s = 20e9,
       .link_latency_s = 12e-6},
  };
  return known;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

}  // namespace

std::unique_ptr<ComputeModel> measured_compute(ComputeSamples samples) { return std::make_unique<Measured>(samples); }

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const DeviceSpeed& device : known_devices()) names.push_back(device.name);
  return names;
}

DeviceSpeed device_speed(const std::string& name) {
  std::string list;
  for (const DeviceSpeed& device : known_devices()) {
    if (device.name == upper(name)) return device;
    list += (list.empty() ? "" : ", ") + device.name;
  }
  const std::string near = nearest(upper(name), device_names());
  fail("no figures for a GPU '", name, "' (there are ", list, ")",
       near.empty() ? "" : concat("; did you mean '", near, "'?"));
}

std::unique_ptr<ComputeModel> device_compute(const DeviceSpeed& speed, const Plan& plan) {
  return std::make_unique<DeviceFloors>(speed, plan);
}

}  // namespace owt
