// Softmax cross-entropy with top-1 and top-5 counts. The end of a net; not a Layer, because it takes labels.
//   p = softmax(logits of a row);  loss = sum over rows of -log p[label]
//   dlogits = (p - onehot(label)) / Pass::step_rows
// The loss is a sum, so that sums over rounds and ranks add up; whoever reports it divides by the rows. The
// gradient carries 1 / N already. A label is in the top k if fewer than k classes have a larger logit, or an
// equal one and a lower index. A row whose loss is not a number (a NaN or +infinite logit) counts as wrong.
#pragma once

#include <cstdint>
#include <vector>

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

class SoftmaxLoss {
 public:
  explicit SoftmaxLoss(int classes);

  // logits: rows x classes; labels: rows, i32; dlogits: like logits, or null where no gradient is wanted. 0
  // rows are allowed. Throws Error naming row and value for a label outside [0, classes).
  LossSums run(const Pass& pass, const Tensor& logits, const Tensor& labels, Tensor* dlogits);

 private:
  struct RowResult {
    double loss;
    bool top1, top5;
  };
  RowResult run_row(const float* logits, int label, float weight, float* dlogits) const;

  int classes_;
  std::vector<RowResult> results_;
};

}  // namespace owt
