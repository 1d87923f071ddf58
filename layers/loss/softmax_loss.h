// The loss of a net: softmax cross-entropy, or the cross-entropy of logistic units; it also counts top-1 and top-5. It
// is not a Layer, because it takes labels.
//   p = softmax(logits of a row);  q = (1 - e) onehot(label) + e / classes,  e: LossSettings::label_smoothing
//   loss = sum over rows of -sum over classes of q log p
//   dlogits = (p - q) / Pass::step_rows
// With mixed labels (mixup, CutMix) a row has two labels with shares s and 1 - s:
//   q = (1 - e) (s onehot(first) + (1 - s) onehot(second)) + e / classes
// Top-1 and top-5 then refer to the first label, which has the larger share.
// With LossSettings::targets a row also has a target t for every class (src/core/row_label.h), e.g. the probabilities
// that a teacher gives. With weight w and temperature T:
//   loss of a row = (1 - w) (loss above) - w T^2 sum over classes of t log p_T,  p_T = softmax(logits / T)
//   dlogits = ((1 - w) (p - q) + w T (p_T sum(t) - t)) / Pass::step_rows
// The factor T^2 keeps the size of the gradient (Hinton et al. 2015, arXiv:1503.02531, section 2). For a teacher's
// targets log p_T - log t replaces log p_T, which makes the sum a KL divergence: it is 0 where both networks agree.
// In evaluation e is 0 whatever the settings say, so that losses of runs with different e can be compared.
// The loss is a sum, so that losses of rounds and ranks can be added; a report divides it by the number of rows. The
// gradient includes the factor 1 / N.
// A label is in the top k if fewer than k classes have a larger logit, or an equal logit and a lower index. A row whose
// loss is not a number (a NaN or +infinite logit) counts as wrong.
// With LossType::kLogistic every class is a separate logistic unit, and q, from the same labels, is its target:
//   p = 1 / (1 + exp(-logit));  loss = sum over rows and classes of -q log p - (1 - q) log(1 - p)
//   dlogits = (p - q) / Pass::step_rows
// A class then needs nothing from the other classes (Krizhevsky 2014, arXiv:1404.5997, section 4; PyTorch's
// BCEWithLogitsLoss(reduction="sum")). Top-1 and top-5 follow the order of the logits as above. Targets are then the
// targets of separate units, whose logits are divided by T; their loss, or their divergence, has the factor w T^2 too.
// Source of label smoothing: Szegedy et al. 2016, section 7; PyTorch's CrossEntropyLoss(label_smoothing) is the same.
// With LossSettings::margin the inputs are cosines (layers/cosine.h) of angles t, and the logits of the softmax are
//   s cos(t) for every class;  s (cos(m1 t + m2) - m3) for the label of a row in training
// Inputs are clamped to [-1, 1] for the angle. In training the counts of top-1 and top-5 are of these logits too, so
// they are lower than without a margin. Beyond m1 t + m2 = pi, where the cosine would rise again, the label's logit
// falls further with t: for m1 = 1 it is s (cos(t) - m2 sin(m2) - m3), as InsightFace's ArcFace has it (a step down of
// at most 0.6 s at pi - m2); else s (-2 - cos(m1 t + m2) - m3), SphereFace's second piece. The gradient
// divides by sin(t), but at least by the sine where the cosine is half a step below 1: 2^-12 in f32, 2^-4 in bf16.
// Sources: Deng et al. 2019, ArcFace (arXiv:1801.07698), with its combined margin; Wang et al. 2018, CosFace
// (arXiv:1801.09414); Liu et al. 2017, SphereFace (arXiv:1704.08063).
// With LossSettings::sample below 1 the sums over classes in training are over the sampled ones (class_sample.h), as if
// the others had no logit; so are the counts of top-1 and top-5. The loss then gets the logits of these classes only.
// sharded_softmax_loss.h computes the same loss when each rank holds some of the classes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "layers/base/bad_values.h"
#include "layers/base/layer.h"
#include "src/core/row_label.h"

namespace owt {

struct LossSums {
  double loss = 0;
  int64_t top1 = 0, top5 = 0, rows = 0;

  LossSums& operator+=(const LossSums& more) {
    loss += more.loss, top1 += more.top1, top5 += more.top5, rows += more.rows;
    return *this;
  }
};

// The layout of the sums on a device: f64, in this order.
enum LossSum : int { kLossSum, kTop1Sum, kTop5Sum, kRowSum, kLossSums };

enum class LossType { kSoftmax, kLogistic };
const char* name_of(LossType type);  // "softmax", "logistic"

struct LossMargin {
  double scale = 0;                          // s above, above 0; 0: the inputs are logits
  double factor = 1, angle = 0, cosine = 0;  // m1 in [0.5, 1.5], m2 in [0, pi / 2], m3 in [0, 1]
  double scale_or_1() const { return scale > 0 ? scale : 1; }
};

struct LossTargets {
  int64_t classes = 0;                 // all classes, or 0: rows have no targets
  double weight = 1, temperature = 1;  // w in [0, 1] and T above
  bool from_teacher = false;           // they are for training only: in evaluation w is 0
};

struct LossSettings {
  double label_smoothing = 0;  // e above, in [0, 1)
  bool mixed_labels = false;   // src/core/row_label.h
  LossType type = LossType::kSoftmax;
  double sample = 1;  // rate of class_sample.h, above 0; 1: all classes. Only for labels that are not smoothed or mixed
  LossMargin margin{};    // not for logistic units, and not for mixed labels
  LossTargets targets{};  // not with a margin, and not with samples; the loss then needs whole rows of logits
  bool samples() const { return sample < 1; }
  // For a run that only evaluates: all classes, and no targets of a teacher.
  LossSettings in_evaluation() const {
    LossSettings loss = *this;
    loss.sample = 1;
    if (targets.from_teacher) loss.targets = {};
    return loss;
  }
  LabelRows label_rows() const { return {mixed_labels, targets.classes}; }
  int64_t label_numbers() const { return label_rows().numbers(); }
};

// Work that follows the sum over the rows; on a GPU it is part of the same launch.
struct LossFollowUp {
  // If the loss is not finite, `first` becomes the minimum of itself and the layers with a value that is not finite.
  std::vector<Watched> watched{};
  Tensor first{};  // i32, one value, on the loss's device; undefined: nothing is checked
  // Host copies of the first kLossSums of `sums` and of `first`, taken afterwards. Undefined: no copy.
  Tensor sums_for_host{}, first_for_host{};
};

class SoftmaxLoss {
 public:
  virtual ~SoftmaxLoss() = default;

  // logits: rows x classes, an activation. labels: rows (x label_numbers()), i32. dlogits: like logits, or null if no
  // gradient is wanted. sums: f64; adds to the first kLossSums. 0 rows are allowed; `then` is skipped in that case. For
  // a label outside [0, classes) the CPU throws Error with row and value; on a GPU the loss of the row is NaN.
  virtual void run(const Pass& pass, const Tensor& logits, const Tensor& labels, Tensor* dlogits, Tensor& sums,
                   const LossFollowUp& then = {}) = 0;
};

// `rows`: the most rows of a batch.
std::unique_ptr<SoftmaxLoss> bind_softmax_loss(Cpu, int classes, int64_t rows, const LossSettings& settings = {});
std::unique_ptr<SoftmaxLoss> bind_softmax_loss(Cuda, int classes, int64_t rows, const LossSettings& settings = {});
std::unique_ptr<SoftmaxLoss> make_softmax_loss(const Compute& on, int classes, int64_t rows,
                                               const LossSettings& settings = {});

}  // namespace owt
