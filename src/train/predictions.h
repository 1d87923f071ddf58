// What a network says about images: class probabilities, averaged over views of an image, and tables of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/dataset.h"
#include "layers/softmax_loss.h"
#include "src/comm/communicator.h"
#include "src/train/evaluation.h"

namespace owt {

struct RankedClass {
  int index = 0;
  double probability = 0;
};

// What the probabilities of one image's views are in the mean, or those of their mean logits, as the views want: the
// softmax of the logits, or, of logistic units, 1 / (1 + exp(-logit)) of each. In f64.
class MeanProbabilities {
 public:
  // label: -1: unknown, and there is no loss. Of views whose probabilities are averaged any number may come.
  explicit MeanProbabilities(int label = -1, const Views& of = {}, LossType type = LossType::kSoftmax)
      : label_(label), of_(of), type_(type) {}

  void add(std::span<const float> logits);  // one per class; the next view
  int views() const { return views_; }
  // What follows: after the last view.
  // The most probable classes, falling, at most `count`; of equal ones the lower index first, as in softmax_loss.h.
  std::vector<RankedClass> top(int count) const;
  // -log of the label's mean probability, and of logistic units also those of the others' complements; finite also
  // where these are too small for numbers.
  double loss() const;
  double of_label() const;   // its mean probability
  int before_label() const;  // classes that rank before it

 private:
  template <class T>
  void add_view(std::span<const T> logits);
  template <class T>
  void add_softmax(std::span<const T> logits);
  template <class T>
  void add_units(std::span<const T> logits);
  double log_mean(double log_sum) const;

  int label_;
  Views of_;
  LossType type_;
  int views_ = 0;               // added
  int summands_ = 0;            // of sums_
  std::vector<double> logits_;  // their weighted sum, where they are averaged
  std::vector<double> sums_;
  double log_sum_of_label_ = 0;
  std::vector<double> log_sums_of_rest_;  // of logistic units: of 1 - p, of every class
};

// The answers for all images of a data set, put together from the evaluation steps of all ranks.
class Predictions {
 public:
  // Of `images`, which must outlive this, in steps of `batch`, each seen in these views, one after the other.
  Predictions(const Dataset& images, int classes, const Views& views, int64_t batch,
              LossType type = LossType::kSoftmax);

  // logits: f32, rows of the step x classes, on the host; rows: their indexes in the step. The views of a step come in
  // order, and each with the same rows on this rank.
  void add(const Batch& step, std::span<const int64_t> rows, const Tensor& logits);
  // Collective: brings the rows of all ranks together, on all ranks. Every image must have come on one of them.
  void gather(Communicator& comm, Device device);

  // After gather().
  Evaluation evaluation() const;  // loss: of mean probabilities; no classes
  std::vector<ClassAccuracy> by_class() const;
  // CSV, one line per image in order: index, name of its source, label, and of the five most probable classes number,
  // name and probability; at last that of the label. Classes without names have their numbers there.
  void write_csv(const std::string& path) const;
  // CSV, a line for each pair of classes that occurs, in order: label and its name, predicted class and its name, and
  // how many images of the label were taken for it.
  void write_confusion_csv(const std::string& path) const;

 private:
  // A line of the table, f64 so that ranks can add theirs up.
  enum Field : int { kTimes, kLoss, kOfLabel, kBeforeLabel, kTopClasses };
  int top() const { return classes_ < 5 ? classes_ : 5; }
  int64_t fields() const { return kTopClasses + 2 * top(); }
  double* line(int64_t image) { return table_.data<double>() + image * fields(); }
  const double* line(int64_t image) const { return table_.data<double>() + image * fields(); }
  int predicted(int64_t image) const { return static_cast<int>(line(image)[kTopClasses]); }
  void note(int64_t image, const MeanProbabilities& mean);
  std::vector<std::string> class_names() const;         // as many as classes_
  std::vector<std::string> quoted_class_names() const;  // for CSV

  const Dataset& images_;
  int classes_;
  Views views_;
  int64_t batch_;
  LossType type_;
  std::vector<MeanProbabilities> step_;  // of the rows of the step at hand
  Tensor table_;                         // images x fields(), zeros where this rank has not seen the image
};

}  // namespace owt
