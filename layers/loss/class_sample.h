// The classes that take part in a training step, if the loss samples them (LossSettings::sample):
//   class c takes part in step t if uniform(seed, t, c) < rate, or if it is the label of a row of the step.
// So the sample depends neither on ranks nor on earlier steps. Nothing about it is sent but the labels, and nothing is
// stored. Rows of the weight that do not take part keep their values and their optimizer state: momentum and decay do
// not move them ("lazy" updates, as in Partial FC and in torch.optim.SparseAdam).
// A rank packs its classes of the sample, in ascending order: column i of its logits is the i-th of them. The number of
// columns is fixed (most_sampled()); the logits of columns without a class are kNoLogit (layers/sampled.h).
// Source of the sample with all labels of the step: An et al. 2020, "Partial FC" (arXiv:2010.05222).
#pragma once

#include <cstdint>
#include <vector>

#include "layers/base/layer.h"
#include "layers/base/sampled_rows.h"
#include "layers/loss/softmax_loss.h"

namespace owt {

// Columns for a part of the classes: the mean of the random number of sampled classes, ten standard deviations, 20, and
// the labels, as a multiple of 8 unless these are all classes. More classes have a probability below 1e-20 in a step.
int64_t most_sampled(int64_t classes, double rate, int64_t step_rows);

// The columns of all ranks, in order: the classes of a loss of packed logits. most: columns of each rank.
std::vector<Slice> columns_of_sample(const std::vector<int64_t>& most);

class ClassSample {
 public:
  // parts: the classes of each rank, in order. most: their columns. rank: this one.
  ClassSample(std::vector<Slice> parts, const std::vector<int64_t>& most, int rank, double rate, int64_t step_rows,
              Device device);

  // Draws the sample of a step. labels: of all its rows (i32, in any order), valid until the work queued here is done;
  // a label that is no class chooses none. counter: f64, one value; adds the number of this rank's classes.
  void draw(const Pass& pass, const Tensor& labels, Tensor& counter);
  const SampledRows& rows() const { return rows_; }  // the latest sample; row: class - first class of the part

  // These labels, of step_rows rows at most, as classes of a loss of packed logits; valid until the next call. A label
  // of another rank becomes any of that rank's columns. On the CPU it throws Error for a label that is no class.
  Tensor columns_of(const Tensor& labels, const Stream& stream);

 private:
  std::vector<Slice> parts_;
  int rank_;
  double rate_;
  Tensor class_begins_, column_begins_;
  Tensor scratch_;
  SampledRows rows_;
  Tensor packed_labels_;
};

// Writes the sample of the classes of a part in ascending order, then kNoRow. If more are sampled than fit, the CPU
// throws Error; a GPU leaves the last ones out, and the counter becomes NaN. scratch: from draw_scratch() for the same
// part; draws that share it must run in sequence.
void draw_classes(Cpu, const Pass& pass, double rate, const Slice& part, const Tensor& labels, Tensor& rows,
                  Tensor& counter, Tensor& scratch);
void draw_classes(Cuda, const Pass& pass, double rate, const Slice& part, const Tensor& labels, Tensor& rows,
                  Tensor& counter, Tensor& scratch);
inline Tensor draw_scratch(Cpu, const Slice&) { return {}; }
Tensor draw_scratch(Cuda, const Slice& part);  // a bit for each class, and four bytes for each 8192 classes

// Writes ClassSample::columns_of(). classes, columns: i32, where the part of each rank begins, and the end. rows: the
// sample of this rank. On a GPU a label that is no class gets the column -1, and so does one that was left out.
void find_columns(Cpu, const Tensor& classes, const Tensor& columns, int rank, const Tensor& rows, const Tensor& labels,
                  Tensor& to, const Stream& stream);
void find_columns(Cuda, const Tensor& classes, const Tensor& columns, int rank, const Tensor& rows,
                  const Tensor& labels, Tensor& to, const Stream& stream);

}  // namespace owt
