// Softmax cross-entropy, or that of logistic units, with top-1 and top-5 counts. The end of a net; not a Layer, because
// it takes labels.
//   p = softmax(logits of a row);  q = (1 - e) onehot(label) + e / classes,  e: LossSettings::label_smoothing
//   loss = sum over rows of -sum over classes of q log p
//   dlogits = (p - q) / Pass::step_rows
// With mixed labels (mixup, CutMix) a row has two, of shares s and 1 - s:
//   q = (1 - e) (s onehot(first) + (1 - s) onehot(second)) + e / classes
// and it counts as right where its first label is: the one of the larger share.
// In evaluation e is 0, whatever the settings say: losses of runs with different e compare. The loss is a sum, so that
// sums over rounds and ranks add up; whoever reports it divides by the rows. The gradient carries 1 / N already. A
// label is in the top k if fewer than k classes have a larger logit, or an equal one and a lower index. A row whose
// loss is not a number (a NaN or +infinite logit) counts as wrong.
// With LossType::kLogistic every class is a logistic unit of its own, and q, from the same labels, its target:
//   p = 1 / (1 + exp(-logit));  loss = sum over rows and classes of -q log p - (1 - q) log(1 - p)
//   dlogits = (p - q) / Pass::step_rows
// which needs nothing of the other classes (Krizhevsky 2014, arXiv:1404.5997, section 4; PyTorch's
// BCEWithLogitsLoss(reduction="sum")). Counts are those of the logits' order, as above.
// Source of the smoothing: Szegedy et al. 2016, section 7; PyTorch's CrossEntropyLoss(label_smoothing) is the same.
// sharded_softmax_loss.h: the same where ranks hold some of the classes each.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "layers/bad_values.h"
#include "layers/layer.h"
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

// Where a device adds them up: f64, in this order.
enum LossSum : int { kLossSum, kTop1Sum, kTop5Sum, kRowSum, kLossSums };

enum class LossType { kSoftmax, kLogistic };
const char* name_of(LossType type);  // "softmax", "logistic"

struct LossSettings {
  double label_smoothing = 0;  // [0, 1); e above
  bool mixed_labels = false;   // src/core/row_label.h
  LossType type = LossType::kSoftmax;
  int64_t label_numbers() const { return mixed_labels ? RowLabel::kMixedNumbers : 1; }
};

// What follows once the losses of the rows are added: on a GPU in the same launch.
struct LossFollowUp {
  // Where the loss is not finite, `first` becomes the least of itself and the layers whose values are not all finite.
  std::vector<Watched> watched{};
  Tensor first{};  // i32, one value, where the loss is computed; undefined: nothing is watched
  // Where the host reads them: what the first kLossSums of `sums` and `first` are then. Undefined: not copied.
  Tensor sums_for_host{}, first_for_host{};
};

class SoftmaxLoss {
 public:
  virtual ~SoftmaxLoss() = default;

  // logits: rows x classes, activations; labels: rows (x label_numbers()), i32; dlogits: like logits, or null where no
  // gradient is wanted; sums: f64, the first kLossSums are added to. 0 rows are allowed, and then nothing follows. A
  // label outside [0, classes) throws Error naming row and value on the CPU; on a GPU its row's loss is NaN.
  virtual void run(const Pass& pass, const Tensor& logits, const Tensor& labels, Tensor* dlogits, Tensor& sums,
                   const LossFollowUp& then = {}) = 0;
};

// For batches of at most so many rows.
std::unique_ptr<SoftmaxLoss> bind_softmax_loss(Cpu, int classes, int64_t rows, const LossSettings& settings = {});
std::unique_ptr<SoftmaxLoss> bind_softmax_loss(Cuda, int classes, int64_t rows, const LossSettings& settings = {});
std::unique_ptr<SoftmaxLoss> make_softmax_loss(const Compute& on, int classes, int64_t rows,
                                               const LossSettings& settings = {});

}  // namespace owt
