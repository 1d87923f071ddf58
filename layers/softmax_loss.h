// Softmax cross-entropy with top-1 and top-5 counts. The end of a net; not a Layer, because it takes labels.
//   p = softmax(logits of a row);  loss = sum over rows of -log p[label]
//   dlogits = (p - onehot(label)) / Pass::step_rows
// The loss is a sum, so that sums over rounds and ranks add up; whoever reports it divides by the rows. The
// gradient carries 1 / N already. A label is in the top k if fewer than k classes have a larger logit, or an
// equal one and a lower index. A row whose loss is not a number (a NaN or +infinite logit) counts as wrong.
#pragma once

#include <cstdint>
#include <memory>

#include "layers/layer.h"

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

class SoftmaxLoss {
 public:
  virtual ~SoftmaxLoss() = default;

  // logits: rows x classes, activations; labels: rows, i32; dlogits: like logits, or null where no gradient is wanted;
  // sums: f64, the first kLossSums are added to. 0 rows are allowed. A label outside [0, classes) throws Error naming
  // row and value on the CPU; on a GPU its row's loss is NaN.
  virtual void run(const Pass& pass, const Tensor& logits, const Tensor& labels, Tensor* dlogits, Tensor& sums) = 0;
};

// For batches of at most so many rows.
std::unique_ptr<SoftmaxLoss> bind_softmax_loss(Cpu, int classes, int64_t rows);
std::unique_ptr<SoftmaxLoss> bind_softmax_loss(Cuda, int classes, int64_t rows);
std::unique_ptr<SoftmaxLoss> make_softmax_loss(const Compute& on, int classes, int64_t rows);

}  // namespace owt
