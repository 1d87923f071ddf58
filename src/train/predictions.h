// Predictions for images: class probabilities, averaged over the views of an image, and tables of them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/batch.h"
#include "data/dataset.h"
#include "layers/loss/add_softmax.h"
#include "layers/loss/softmax_loss.h"
#include "src/comm/communicator.h"
#include "src/train/evaluation.h"

namespace owt {

struct RankedClass {
  int index = 0;
  double probability = 0;
};

// Averages an image's views: the mean of their probabilities, or the probabilities of their mean logits, as the views
// specify. Probabilities are the softmax of the logits, or for logistic units 1 / (1 + exp(-logit)). In f64. The
// classes of an image may be in several such objects, unless it has targets.
class MeanProbabilities {
 public:
  static constexpr int64_t kUnknown = std::numeric_limits<int64_t>::min();  // a label: there is no loss
  // label: among the classes here; outside of them if it is not here. If probabilities are averaged, any number of
  // views may be added. The logits are multiplied by `scale` (LossMargin::scale_or_1()). targets: in place of 1 for
  // the label and 0 for others (LossSettings::targets); empty: none.
  explicit MeanProbabilities(int64_t label = kUnknown, const Views& of = {}, LossType type = LossType::kSoftmax,
                             double scale = 1, std::vector<float> targets = {})
      : label_(label), of_(of), type_(type), scale_(scale), targets_(std::move(targets)) {}

  // Adds the logits of the next view, one per class here. start() returns the sum of the softmax that finish() needs of
  // all classes of the image.
  SoftmaxSum start(std::span<const float> logits);
  void finish(std::span<const float> logits, const SoftmaxSum& of_image);
  void add(std::span<const float> logits) { finish(logits, start(logits)); }  // all classes are here
  int views() const { return views_; }
  // The functions below may be called after the last view. top(): the `count` most probable classes in descending
  // order; the lower index first among equals, as in softmax_loss.h.
  std::vector<RankedClass> top(int count) const;
  // -log of the label's mean probability; for logistic units plus -log of the complements of the others. With targets
  // all classes count, by their targets. Finite even if these probabilities are too small for a number. The loss of an
  // image is the sum over its classes, wherever they are.
  double loss() const;
  std::vector<double> all() const;  // the mean probabilities of the classes here
  double of_label() const;          // mean probability of the label; 0 if it is not here
  double ranked_label() const;      // the same, rounded as top() rounds it

 private:
  template <class T>
  void add_view(std::span<const T> logits, const SoftmaxSum& of_image);
  template <class T>
  void add_softmax_of(std::span<const T> logits, const SoftmaxSum& of_image);
  template <class T>
  void add_units(std::span<const T> logits);
  double log_mean(double log_sum) const;
  void add_to_log_sum(size_t c, double log_probability);
  double loss_of_targets() const;
  bool has_label() const { return label_ >= 0 && label_ < std::ssize(sums_); }

  int64_t label_;
  Views of_;
  LossType type_;
  double scale_;
  int views_ = 0;               // number of views added
  int summands_ = 0;            // number of summands in sums_
  std::vector<double> logits_;  // weighted sum of the logits, if they are averaged or scaled
  std::vector<double> sums_;
  std::vector<float> targets_;
  std::vector<double> log_sums_;  // with targets: log of the sum of p, for every class
  double log_sum_of_label_ = 0;
  std::vector<double> log_sums_of_rest_;  // logistic units: log of the sum of 1 - p, for every class
};

// The classes of a rank, and the ranks that have the other classes of the same rows.
struct ClassShard {
  Slice classes;
  Communicator* ranks = nullptr;  // null: this rank has all classes
  Device device = Device::kCpu;   // where collectives have their data
};

// The average precision of a class: the mean of the precisions at the scores of the positive images, where images with
// equal scores count together (scikit-learn's average_precision_score). scores: numbers for all images, and whether
// they are positive. Not a number if none is.
double average_precision(std::vector<std::pair<double, bool>> scores);

// The predictions for all images of a data set, collected from the evaluation steps of all ranks. If the classes are
// split over ranks, each computes the probabilities of its own; then they exchange what they found for each image. An
// image whose loss is not a number (softmax_loss.h) counts as wrong and has no predicted class.
class Predictions {
 public:
  // images: must outlive this. They come in steps of `batch`, each step once per view. Without a shard, all classes are
  // here. scale: as above. Classes of images with targets are not split.
  Predictions(const Dataset& images, int classes, const Views& views, int64_t batch, LossType type = LossType::kSoftmax,
              const ClassShard& shard = {}, double scale = 1);

  // logits: f32, rows of the step x classes of this rank, on the host. rows: their indexes in the step. The views of a
  // step come in order, each with the same rows on this rank. Collective over the shard's ranks, which have equal rows.
  void add(const Batch& step, std::span<const int64_t> rows, const Tensor& logits);
  // Collective: gathers the rows of all ranks on all ranks. Every image must have been seen by one of them.
  void gather(Communicator& comm, Device device);

  // Call these after gather().
  // The loss of mean probabilities. Without classes; with the average precision if units are logistic and have targets.
  Evaluation evaluation() const;
  std::vector<ClassAccuracy> by_class() const;
  // Writes a CSV with one line per image in order: index, name of its source, label; number, name and probability of
  // the five most probable classes; probability of the label. Classes without names have their numbers as names. The
  // number and the name of a class that there is not are empty.
  void write_csv(const std::string& path) const;
  // Writes a CSV with a line for each pair of classes that occurs, in order: label and its name, predicted class and
  // its name, number of such images.
  void write_confusion_csv(const std::string& path) const;

 private:
  // The fields of a table line; f64, so that ranks can sum their tables.
  enum Field : int { kTimes, kLoss, kOfLabel, kRankedLabel, kTopClasses };
  int top() const { return classes_ < 5 ? classes_ : 5; }
  // Whether a line ends with the probabilities of all classes.
  bool has_all() const { return images_.targets() > 0 && type_ == LossType::kLogistic; }
  int64_t all_classes() const { return kTopClasses + 2 * top(); }
  int64_t fields() const { return all_classes() + (has_all() ? classes_ : 0); }
  const double* line(int64_t image) const { return table_.data<double>() + image * fields(); }
  // -1: none
  int predicted(int64_t image) const { return static_cast<int>(line(image)[kTopClasses]); }
  std::vector<float> targets_of(int64_t image) const;
  int before_label(int64_t image) const;  // how many of the most probable classes rank before the label
  Tensor start_view(const Batch& step, std::span<const int64_t> rows, const Tensor& logits);
  void write_line(const MeanProbabilities& mean, double* to) const;
  std::optional<double> average_precision() const;
  void merge(std::span<const double> lines, int64_t stride, double* to) const;

  const Dataset& images_;
  int classes_;
  Views views_;
  int64_t batch_;
  LossType type_;
  double scale_;
  ClassShard shard_;
  std::vector<MeanProbabilities> step_;  // for the rows of the current step
  // images x fields(); zeros for images that this rank, or the first of its shard's ranks, has not seen
  Tensor table_;
};

}  // namespace owt
