#include "layers/loss/softmax_rows.h"

#include <algorithm>
#include <cmath>

#include "src/system/check.h"

namespace owt {

const char* name_of(LossType type) { return type == LossType::kLogistic ? "logistic" : "softmax"; }

SmoothTarget target_of(const LossSettings& settings, Mode mode, int classes) {
  return {mode == Mode::kTrain ? settings.label_smoothing : 0, classes};
}

TargetShare share_of_targets(const LossSettings& settings, Mode mode) {
  const LossTargets& targets = settings.targets;
  const bool counts = targets.classes > 0 && (mode == Mode::kTrain || !targets.from_teacher);
  return {counts ? targets.weight : 0, targets.temperature, targets.from_teacher};
}

RowMargin margin_of(const LossSettings& settings, Mode mode, DType inputs) {
  const LossMargin& margin = settings.margin;
  RowMargin row{.scale = static_cast<float>(margin.scale_or_1())};
  if (mode != Mode::kTrain) return row;
  row.factor = margin.factor, row.angle = margin.angle, row.cosine = margin.cosine;
  row.least_sine = inputs == DType::kBF16 ? 0x1p-4 : 0x1p-12;
  return row;
}

void check_loss(const LossSettings& settings, int64_t classes) {
  OWT_CHECK(classes >= 1, "a loss over ", classes, " classes");
  OWT_CHECK(settings.label_smoothing >= 0 && settings.label_smoothing < 1, "label_smoothing is ",
            settings.label_smoothing, ", wanted 0 to less than 1");
  OWT_CHECK(settings.margin.scale == 0 || (settings.type == LossType::kSoftmax && !settings.mixed_labels),
            "a margin is for the softmax of labels that are not mixed");
  const LossTargets& targets = settings.targets;
  if (targets.classes == 0) return;
  OWT_CHECK_EQ(targets.classes, classes, "a target for every class");
  OWT_CHECK(targets.weight >= 0 && targets.weight <= 1 && targets.temperature > 0, "targets have the weight ",
            targets.weight, " and the temperature ", targets.temperature);
  OWT_CHECK(settings.margin.scale == 0 && !settings.samples(), "targets are for all classes and without a margin");
}

void check_labels(const int32_t* labels, int64_t rows, int64_t classes, const LossSettings& settings) {
  const auto check = [&](int64_t row, int32_t label) {
    if (label < 0 || label >= classes)
      fail("the label of row ", row, " is ", label, ", wanted 0 to ", classes - 1,
           "; does the model's 'classes' match the data?");
  };
  const int64_t numbers = settings.label_numbers();
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t* label = labels + row * numbers;
    check(row, label[0]);
    if (!settings.mixed_labels) continue;
    check(row, label[1]);
    OWT_CHECK(label[2] >= 0 && label[2] <= RowLabel::kShareUnits, "the share of row ", row, " is ", label[2]);
  }
}

void check_label_shape(const Tensor& labels, int64_t rows, const LossSettings& settings) {
  OWT_CHECK_EQ(labels.shape().rows(), rows, "one label per row");
  OWT_CHECK_EQ(labels.elements(), rows * settings.label_numbers(), "as many numbers per label as the settings say");
}

void add_rows(Cpu, std::span<const RowResult> results, Tensor& sums, LossFollowUp then, const Stream&) {
  double* const all = sums.data<double>();
  all[kRowSum] += static_cast<double>(results.size());
  for (const RowResult& result : results) {
    all[kLossSum] += result.loss;
    all[kTop1Sum] += result.top1;
    all[kTop5Sum] += result.top5;
  }
  if (then.first.defined() && !std::isfinite(all[kLossSum])) {
    int32_t& first = *then.first.data<int32_t>();
    first = first_bad_layer(then.watched, first);
  }
  if (then.sums_for_host.defined()) std::copy_n(all, kLossSums, then.sums_for_host.data<double>());
  if (then.first_for_host.defined()) *then.first_for_host.data<int32_t>() = *then.first.data<int32_t>();
}

}  // namespace owt
