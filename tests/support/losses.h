// Runs the losses on lists of numbers, and computes expected results.
#pragma once

#include <cmath>
#include <vector>

#include "layers/loss/softmax_loss.h"
#include "tests/support/harness.h"

namespace owt {

struct LossCase {
  std::vector<float> logits;    // rows x classes
  std::vector<int32_t> labels;  // label_numbers() values for each row
  LossSettings settings = {};
  Mode mode = Mode::kTrain;
  int64_t step_rows = 0;  // 0: the number of rows

  int64_t rows() const { return static_cast<int64_t>(labels.size()) / settings.label_numbers(); }
  int64_t classes() const { return static_cast<int64_t>(logits.size()) / rows(); }
  RowLabel label(size_t row) const { return settings.label_rows().label(labels.data(), static_cast<int64_t>(row)); }
  Tensor labels_on(Device device) const {
    const Tensor made = upload_labels(labels, device);
    return settings.label_numbers() > 1 ? made.reshaped({rows(), settings.label_numbers()}) : made;
  }
  void give_to(Pass& pass) const {
    pass.mode = mode;
    pass.step_rows = step_rows > 0 ? step_rows : rows();
  }
};

struct LossResult {
  LossSums sums;
  std::vector<float> dlogits;
};

inline Tensor no_sums(Device device) {
  Tensor sums({kLossSums}, DType::kF64, device);
  sums.zero();
  return sums;
}

inline LossSums read_sums(const Tensor& sums) {
  const Tensor here = sums.to(Device::kCpu);
  const double* sum = here.data<double>();
  return {sum[kLossSum], static_cast<int64_t>(sum[kTop1Sum]), static_cast<int64_t>(sum[kTop5Sum]),
          static_cast<int64_t>(sum[kRowSum])};
}

// Runs a SoftmaxLoss that is bound for one row more. Gradients are filled with NaN first, so that elements that are not
// written show.
inline LossResult run_loss(const LossCase& of, const Compute& on) {
  const Shape shape{of.rows(), of.classes()};
  const DType dtype = activation_type(on.precision);
  DevicePass pass(on.device, of.rows());
  of.give_to(pass.pass());
  Tensor dlogits(shape, dtype, on.device), sums = no_sums(on.device);
  fill(dlogits, std::nanf(""));
  make_softmax_loss(on, static_cast<int>(of.classes()), of.rows() + 1, of.settings)
      ->run(pass.pass(), upload(of.logits, shape, on.device, dtype), of.labels_on(on.device), &dlogits, sums);
  pass.stream().synchronize();
  return {read_sums(sums), download(dlogits)};
}

// The definition of LossSettings::margin in f64: the logits of cosines.
inline std::vector<double> logits_of_cosines(std::vector<double> x, int label, const LossMargin& margin) {
  double& own = x[static_cast<size_t>(label)];
  const double angle = margin.factor * std::acos(own) + margin.angle;
  if (angle <= M_PI)
    own = std::cos(angle) - margin.cosine;
  else if (margin.factor == 1)
    own = own - margin.angle * std::sin(M_PI - margin.angle) - margin.cosine;
  else
    own = -std::cos(angle) - 2 - margin.cosine;
  for (double& logit : x) logit *= margin.scale;
  return x;
}

// The definition of targets in f64: the loss of one row, without its factor. targets: of LabelRows.
inline double loss_of_targets(const std::vector<double>& x, const int32_t* targets, const LossSettings& settings) {
  double sum = 0, loss = 0;
  for (const double logit : x) sum += std::exp(logit / settings.targets.temperature);
  for (size_t c = 0; c < x.size(); ++c) {
    const double logit = x[c] / settings.targets.temperature, target = double{target_of(targets[c])};
    loss += settings.type == LossType::kLogistic ? std::log1p(std::exp(logit)) - target * logit
                                                 : target * (std::log(sum) - logit);
  }
  return loss;
}

// The definition in f64: the loss of one row in training, without targets.
inline double loss_of_row(std::vector<double> x, const RowLabel& label, const LossSettings& settings) {
  if (settings.margin.scale > 0) x = logits_of_cosines(std::move(x), label.first, settings.margin);
  const double smoothing = settings.label_smoothing;
  double sum = 0, loss = 0;
  for (const double logit : x) sum += std::exp(logit);
  for (size_t c = 0; c < x.size(); ++c) {
    const double target = smoothing / static_cast<double>(x.size()) +
                          (1 - smoothing) * static_cast<double>(label.share_of(static_cast<int>(c)));
    loss += settings.type == LossType::kLogistic ? std::log1p(std::exp(x[c])) - target * x[c]
                                                 : target * (std::log(sum) - x[c]);
  }
  return loss;
}

// Its gradient, by differences, divided by the rows of the step.
inline std::vector<double> gradient_by_differences(const LossCase& of) {
  std::vector<double> gradient;
  constexpr double kStep = 1e-4;
  const LossTargets& targets = of.settings.targets;
  const auto loss_of = [&](const std::vector<double>& x, size_t row) {
    const double of_label = loss_of_row(x, of.label(row), of.settings);
    if (targets.classes == 0) return of_label;
    const int32_t* its = of.settings.label_rows().targets_of(of.labels.data(), static_cast<int64_t>(row));
    return (1 - targets.weight) * of_label +
           targets.weight * targets.temperature * targets.temperature * loss_of_targets(x, its, of.settings);
  };
  const auto classes = static_cast<size_t>(of.classes());
  for (size_t i = 0; i < of.logits.size(); ++i) {
    const size_t row = i / classes, c = i % classes;
    const auto first = of.logits.begin() + static_cast<std::ptrdiff_t>(row * classes);
    std::vector<double> x(first, first + static_cast<std::ptrdiff_t>(classes));
    const double at = x[c];
    x[c] = at + kStep;
    const double high = loss_of(x, row);
    x[c] = at - kStep;
    const double low = loss_of(x, row);
    gradient.push_back((high - low) / (2 * kStep) / static_cast<double>(of.step_rows > 0 ? of.step_rows : of.rows()));
  }
  return gradient;
}

}  // namespace owt
