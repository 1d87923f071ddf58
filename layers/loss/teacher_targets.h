// Makes rows of labels with targets (src/core/row_label.h) from rows of labels and the logits of a teacher.
//   softmax: t = softmax(scale * logits / T) of the row;  logistic units: t = 1 / (1 + exp(-scale * logits / T))
// T is LossTargets::temperature, so that the loss compares both networks at one temperature (Hinton et al. 2015,
// arXiv:1503.02531, section 2).
#pragma once

#include <cmath>

#include "layers/loss/softmax_loss.h"
#include "src/core/on_devices.h"

namespace owt {

// labels: rows x the numbers of a label, i32. logits: rows x classes, an activation; null: all targets are 0. scale: of
// the teacher's logits (LossMargin::scale_or_1()). out: rows x label_numbers() of the settings. All on one device.
void write_teacher_targets(Cpu, const Tensor& labels, const Tensor* logits, double scale, const LossSettings& settings,
                           Tensor& out, const Stream& stream);
void write_teacher_targets(Cuda, const Tensor& labels, const Tensor* logits, double scale, const LossSettings& settings,
                           Tensor& out, const Stream& stream);

// One target from a logit. of_row: the largest logit of the row and the sum of exp((logit - largest) * factor).
struct TeacherTarget {
  bool logistic;
  float factor;  // scale / T

  OWT_ON_DEVICES float of(float logit, float largest, float sum) const {
    if (!logistic) return expf((logit - largest) * factor) / sum;
    const float exponential = expf(-fabsf(logit * factor));
    return (logit > 0 ? 1 : exponential) / (1 + exponential);
  }
};
TeacherTarget teacher_target(const LossSettings& settings, double scale);
// Throws Error unless the tensors have the shapes above.
void check_teacher_targets(const Tensor& labels, const Tensor* logits, const LossSettings& settings, const Tensor& out);

}  // namespace owt
