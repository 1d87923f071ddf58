#include "src/onnx/export_ranges.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "src/commands/features.h"
#include "src/net/composite.h"

namespace owt {
namespace {

constexpr int64_t kBatch = 32;      // images whose activations are in memory together
constexpr size_t kBins = 2048;      // the bins of a histogram
constexpr size_t kFirstBins = 128;  // a lower threshold is not tried

using See = std::function<void(const std::string& layer, const Tensor& y)>;

// Runs layers one by one, inner layers before the composite layer that has them, and shows every output.
class LayerByLayer {
 public:
  explicit LayerByLayer(See see) : see_(std::move(see)) {}

  Tensor run(const Net& net, Tensor x) const {
    for (int64_t i = 0; i < net.size(); ++i) x = run(net.layer(i), x);
    return x;
  }

 private:
  Tensor run(Layer& layer, const Tensor& x) const {
    if (const auto* composite = dynamic_cast<const Composite*>(&layer))
      for (const Net& branch : composite->branches()) run(branch, x);
    const std::unique_ptr<Op> op = layer.bind(x.shape(), {});
    std::vector<int64_t> rows(static_cast<size_t>(x.shape().rows()));
    std::iota(rows.begin(), rows.end(), 0);
    const Stream stream;
    Pass pass;
    pass.mode = Mode::kEval;
    pass.step_rows = std::ssize(rows);
    pass.rows = rows;
    pass.stream = &stream;
    pass.scratch = Tensor({op->scratch_bytes(Phase::kForward)}, DType::kU8);
    Tensor y(layer.out_shape(x.shape()));
    op->forward(pass, x, y);
    if (!all_finite(y)) fail("the output of layer '", layer.name(), "' holds values that are not finite");
    see_(layer.name(), y);
    return y;
  }

  See see_;
};

// Features of the whole network in f32 on the CPU, in small batches.
Features calibration_images(Settings settings, const std::string& weights, const OnnxOptions& options) {
  settings.run.device = "cpu";
  settings.run.precision = Precision::kFp32;
  settings.data.batch = std::max(kBatch, settings.model.row_group);
  settings.data.batch_per_rank = 0;
  settings.data.accumulate = 1;
  FeatureSource source;
  source.weights = weights;
  source.run_folder = options.run_folder;
  source.data = options.data;
  source.layer = whole_layers(settings.model).back()->name();
  source.split = Split::kTrain;
  source.spread = options.calibration.images;
  source.labels = false;
  return Features(settings, source);
}

void each_activation(Features& features, const See& see) {
  features.each_input([&](const Tensor& images) {
    see(kImageRange, images);
    LayerByLayer(see).run(features.net(), images);
  });
}

// Quantised values always include 0.
void widen(ValueRange& range, const Tensor& y) {
  const auto [low, high] = std::minmax_element(y.data(), y.data() + y.elements());
  range.low = std::min(range.low, *low);
  range.high = std::max(range.high, *high);
}

void count(Magnitudes& magnitudes, const Tensor& y) {
  if (magnitudes.largest == 0) return;
  const float bins = static_cast<float>(kBins) / magnitudes.largest;
  for (const float value : std::span(y.data(), static_cast<size_t>(y.elements())))
    ++magnitudes.counts[std::min(static_cast<size_t>(std::abs(value) * bins), kBins - 1)];
}

float upper_edge(const Magnitudes& magnitudes, size_t bins) {
  return magnitudes.largest * static_cast<float>(bins) / static_cast<float>(magnitudes.counts.size());
}

// Kullback-Leibler divergence of the first `bins` bins, with all later values in the last of them, from the same bins
// merged to levels and spread again over the bins that are not empty.
double divergence(std::span<const double> counts, size_t bins, int levels) {
  const auto sum = [&](size_t begin, size_t end) {
    return std::accumulate(counts.begin() + static_cast<ptrdiff_t>(begin), counts.begin() + static_cast<ptrdiff_t>(end),
                           0.0);
  };
  const double all = sum(0, counts.size()), clipped = sum(bins, counts.size());
  double result = 0;
  for (int level = 0; level < levels; ++level) {
    const size_t begin = bins * static_cast<size_t>(level) / static_cast<size_t>(levels),
                 end = bins * static_cast<size_t>(level + 1) / static_cast<size_t>(levels);
    const auto used = std::count_if(counts.begin() + static_cast<ptrdiff_t>(begin),
                                    counts.begin() + static_cast<ptrdiff_t>(end), [](double n) { return n > 0; });
    const double mean = used > 0 ? sum(begin, end) / static_cast<double>(used) / (all - clipped) : 0;
    for (size_t i = begin; i < end; ++i) {
      const double p = (counts[i] + (i + 1 == bins ? clipped : 0)) / all;
      if (p > 0) result += p * std::log(p / std::max(counts[i] > 0 ? mean : 0, 1e-12));
    }
  }
  return result;
}

}  // namespace

float percentile_threshold(const Magnitudes& magnitudes) {
  const int64_t all = std::accumulate(magnitudes.counts.begin(), magnitudes.counts.end(), int64_t{0});
  const auto most = static_cast<int64_t>(kClipped * static_cast<double>(all));
  size_t bins = magnitudes.counts.size();
  for (int64_t above = 0; bins > 1 && (above += magnitudes.counts[bins - 1]) <= most;) --bins;
  return upper_edge(magnitudes, bins);
}

// The bin of 0 counts like its neighbour: after a relu most values are 0, which every threshold represents.
float kl_threshold(const Magnitudes& magnitudes, int levels) {
  std::vector<double> counts(magnitudes.counts.begin(), magnitudes.counts.end());
  if (counts.size() <= kFirstBins) return magnitudes.largest;
  counts[0] = counts[1];
  size_t best = counts.size();
  double least = divergence(counts, best, levels);
  for (size_t bins = std::max(kFirstBins, static_cast<size_t>(levels)); bins < counts.size(); ++bins)
    if (const double found = divergence(counts, bins, levels); found < least) least = found, best = bins;
  return std::max(upper_edge(magnitudes, best), percentile_threshold(magnitudes));
}

ActivationRanges activation_ranges(const Settings& settings, const std::string& weights, const OnnxOptions& options) {
  Features features = calibration_images(settings, weights, options);
  ActivationRanges ranges;
  each_activation(features, [&](const std::string& layer, const Tensor& y) { widen(ranges[layer], y); });
  const CalibrationMethod method = options.calibration.method;
  if (method == CalibrationMethod::kMinMax) return ranges;
  std::map<std::string, Magnitudes> magnitudes;
  for (const auto& [layer, range] : ranges)
    magnitudes[layer] = {std::max(-range.low, range.high), std::vector<int64_t>(kBins)};
  each_activation(features, [&](const std::string& layer, const Tensor& y) { count(magnitudes[layer], y); });
  for (auto& [layer, range] : ranges) {
    const bool one_sided = range.low == 0 || range.high == 0;
    const float threshold = method == CalibrationMethod::kKl ? kl_threshold(magnitudes[layer], one_sided ? 255 : 128)
                                                             : percentile_threshold(magnitudes[layer]);
    range = {std::max(range.low, -threshold), std::min(range.high, threshold)};
  }
  return ranges;
}

}  // namespace owt
