#include "src/train/predictions.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "src/comm/on_host.h"
#include "src/core/threads.h"
#include "src/system/csv.h"
#include "src/system/files.h"
#include "src/system/log.h"

namespace owt {
namespace {

constexpr size_t kPiece = 1 << 16;  // bytes of text to write at a time

// log(exp(a) + exp(b)) without overflow.
double log_sum(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return a + b;
  const double high = std::max(a, b), low = std::min(a, b);
  return std::isinf(high) ? high : high + std::log1p(std::exp(low - high));
}

// log(1 / (1 + exp(-x))) without overflow.
double log_of_unit(double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x))); }

// Text that is written to a file in pieces; it replaces the file when it is complete.
class TextFile {
 public:
  explicit TextFile(const std::string& path) : file_(path) {}
  void add(const std::string& text) {
    text_ += text;
    if (text_.size() >= kPiece) write();
  }
  void close() {
    write();
    file_.close();
  }

 private:
  void write() {
    file_.write(text_);
    text_.clear();
  }

  AtomicFileWriter file_;
  std::string text_;
};

// The values of all ranks of the shard, each like `mine`.
Tensor of_ranks(const ClassShard& shard, const Tensor& mine) {
  return shard.ranks ? on_host::gather(*shard.ranks, mine, shard.device) : mine;
}

// A class in a CSV file; empty for kNoClass.
constexpr int kNoClass = -1;
std::string number_of(int64_t c) { return c == kNoClass ? "" : std::to_string(c); }

// The names of a data set's classes; further classes have their numbers as names.
class ClassNames {
 public:
  explicit ClassNames(const Dataset& images) : names_(images.class_names()) {}
  std::string of(int64_t c) const {
    return c >= 0 && c < std::ssize(names_) ? names_[static_cast<size_t>(c)] : number_of(c);
  }
  std::string quoted(int64_t c) const { return csv_quoted(of(c)); }

 private:
  std::vector<std::string> names_;
};

}  // namespace

SoftmaxSum MeanProbabilities::start(std::span<const float> logits) {
  const int view = views_++;
  const bool softmax = type_ == LossType::kSoftmax, averages = of_.average_logits();
  if (!averages && scale_ == 1) return softmax ? softmax_sum(logits) : SoftmaxSum();
  OWT_CHECK(!averages || (view < of_.count && (view == 0 || logits_.size() == logits.size())));
  if (!averages) logits_.clear();
  logits_.resize(logits.size());
  const double weight = averages ? scale_ * of_.weight(view) : scale_;
  for (size_t c = 0; c < logits.size(); ++c) logits_[c] += weight * static_cast<double>(logits[c]);
  return softmax && (!averages || views_ == of_.count) ? softmax_sum(logits_) : SoftmaxSum();
}

void MeanProbabilities::finish(std::span<const float> logits, const SoftmaxSum& of_image) {
  const bool averages = of_.average_logits();
  if (!averages && scale_ == 1) return add_view(logits, of_image);
  if (!averages || views_ == of_.count) add_view(std::span<const double>(logits_), of_image);
}

template <class T>
void MeanProbabilities::add_view(std::span<const T> logits, const SoftmaxSum& of_image) {
  OWT_CHECK(summands_ == 0 || sums_.size() == logits.size());
  sums_.resize(logits.size());
  if (type_ == LossType::kLogistic)
    add_units(logits);
  else
    add_softmax_of(logits, of_image);
  ++summands_;
}

template <class T>
void MeanProbabilities::add_units(std::span<const T> logits) {
  constexpr double kNone = -HUGE_VAL;
  if (label_ != kUnknown && summands_ == 0) log_sum_of_label_ = kNone, log_sums_of_rest_.assign(logits.size(), kNone);
  for (size_t c = 0; c < logits.size(); ++c) {
    const auto x = static_cast<double>(logits[c]);
    sums_[c] += 1 / (1 + std::exp(-x));
    if (label_ != kUnknown) log_sums_of_rest_[c] = log_sum(log_sums_of_rest_[c], log_of_unit(-x));
    if (!targets_.empty()) add_to_log_sum(c, log_of_unit(x));
  }
  if (!has_label()) return;
  const double own = static_cast<double>(logits[static_cast<size_t>(label_)]);
  log_sum_of_label_ = log_sum(log_sum_of_label_, log_of_unit(own));
}

template <class T>
void MeanProbabilities::add_softmax_of(std::span<const T> logits, const SoftmaxSum& of_image) {
  add_softmax(logits, of_image, sums_);
  for (size_t c = 0; c < targets_.size(); ++c) add_to_log_sum(c, static_cast<double>(logits[c]) - of_image.log());
  if (!has_label()) return;
  const double own = static_cast<double>(logits[static_cast<size_t>(label_)]) - of_image.log();
  log_sum_of_label_ = summands_ == 0 ? own : log_sum(log_sum_of_label_, own);
}

void MeanProbabilities::add_to_log_sum(size_t c, double log_probability) {
  log_sums_.resize(targets_.size(), -HUGE_VAL);
  log_sums_[c] = log_sum(log_sums_[c], log_probability);
}

std::vector<RankedClass> MeanProbabilities::top(int count) const {
  const auto before = [this](int a, int b) {
    const double at_a = sums_[static_cast<size_t>(a)], at_b = sums_[static_cast<size_t>(b)];
    return at_a != at_b ? at_a > at_b : a < b;
  };
  std::vector<int> best;  // a heap with the last of them in front
  double least = 0;       // its sum, if there are `count`; a later class needs more
  for (int c = 0; c < std::ssize(sums_); ++c) {
    const bool full = std::ssize(best) == count;
    if (full && !(sums_[static_cast<size_t>(c)] > least)) continue;
    if (full) {
      std::pop_heap(best.begin(), best.end(), before);
      best.pop_back();
    }
    best.push_back(c);
    std::push_heap(best.begin(), best.end(), before);
    least = sums_[static_cast<size_t>(best.front())];
  }
  std::sort_heap(best.begin(), best.end(), before);
  std::vector<RankedClass> all;
  for (const int c : best) all.push_back({c, sums_[static_cast<size_t>(c)] / summands_});
  return all;
}

double MeanProbabilities::log_mean(double log_sum) const { return log_sum - std::log(summands_); }

double MeanProbabilities::of_label() const { return has_label() ? std::exp(log_mean(log_sum_of_label_)) : 0; }

double MeanProbabilities::ranked_label() const {
  return has_label() ? sums_[static_cast<size_t>(label_)] / summands_ : 0;
}

std::vector<double> MeanProbabilities::all() const {
  std::vector<double> means = sums_;
  for (double& mean : means) mean /= summands_;
  return means;
}

double MeanProbabilities::loss_of_targets() const {
  double loss = 0;
  for (size_t c = 0; c < targets_.size(); ++c) {
    const auto target = static_cast<double>(targets_[c]);
    if (target > 0) loss -= target * log_mean(log_sums_[c]);
    if (target < 1 && !log_sums_of_rest_.empty()) loss -= (1 - target) * log_mean(log_sums_of_rest_[c]);
  }
  return loss;
}

double MeanProbabilities::loss() const {
  if (!targets_.empty()) return loss_of_targets();
  double loss = has_label() ? -log_mean(log_sum_of_label_) : 0;
  for (int64_t c = 0; c < std::ssize(log_sums_of_rest_); ++c)
    if (c != label_) loss -= log_mean(log_sums_of_rest_[static_cast<size_t>(c)]);
  return loss;
}

double average_precision(std::vector<std::pair<double, bool>> scores) {
  std::ranges::sort(scores, std::greater());
  const auto all = std::ranges::count(scores, true, &std::pair<double, bool>::second);
  double sum = 0;
  int64_t seen = 0, found = 0;
  for (auto at = scores.begin(); at != scores.end();) {
    const double score = at->first;
    int64_t positives = 0;
    for (; at != scores.end() && at->first == score; ++at) ++seen, positives += at->second;
    found += positives;
    sum += static_cast<double>(positives) * static_cast<double>(found) / static_cast<double>(seen);
  }
  return sum / static_cast<double>(all);
}

Predictions::Predictions(const Dataset& images, int classes, const Views& views, int64_t batch, LossType type,
                         const ClassShard& shard, double scale)
    : images_(images), classes_(classes), views_(views), batch_(batch), type_(type), scale_(scale), shard_(shard) {
  if (!shard.ranks) shard_.classes = {0, classes};
  step_.resize(static_cast<size_t>(batch));
  table_ = Tensor({images.size(), fields()}, DType::kF64);
  table_.zero();
}

constexpr int64_t kPredictionGrain = 8;  // rows of a thread

void Predictions::add(const Batch& step, std::span<const int64_t> rows, const Tensor& logits) {
  const int64_t count = std::ssize(rows), held = shard_.classes.size();
  OWT_CHECK_EQ(logits.elements(), count * held);
  if (count == 0) return;
  const Tensor sums = start_view(step, rows, logits);
  const bool last = step.view == views_.first + views_.count - 1;
  Tensor lines({last ? count : 0, fields()}, DType::kF64);
  parallel_for(count, kPredictionGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      SoftmaxSum of_image;
      for (int64_t at = 2 * i; at < sums.elements(); at += 2 * count)
        of_image.add({sums.data<double>()[at], sums.data<double>()[at + 1]});
      MeanProbabilities& mean = step_[static_cast<size_t>(rows[static_cast<size_t>(i)])];
      mean.finish({logits.data() + i * held, static_cast<size_t>(held)}, of_image);
      if (!last) continue;
      write_line(mean, lines.data<double>() + i * fields());
      mean = MeanProbabilities();  // frees its memory, which a single view needs for a moment only
    }
  });
  if (!last) return;
  const Tensor all = of_ranks(shard_, lines);
  if (shard_.ranks && shard_.ranks->rank() != 0) return;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t image = step.step_in_epoch * batch_ + rows[static_cast<size_t>(i)];
    const std::span every(all.data<double>(), static_cast<size_t>(all.elements()));
    merge(every.subspan(static_cast<size_t>(i * fields())), count * fields(), table_.data<double>() + image * fields());
  }
}

std::vector<float> Predictions::targets_of(int64_t image) const {
  std::vector<int32_t> bits(static_cast<size_t>(images_.targets()));
  images_.write_targets(image, bits.data());
  std::vector<float> targets;
  std::ranges::transform(bits, std::back_inserter(targets), target_of);
  return targets;
}

// Returns the sums of the softmax on all ranks: ranks x rows x (largest, sum).
Tensor Predictions::start_view(const Batch& step, std::span<const int64_t> rows, const Tensor& logits) {
  const int64_t count = std::ssize(rows), held = shard_.classes.size();
  Tensor sums({count, 2}, DType::kF64);
  parallel_for(count, kPredictionGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = rows[static_cast<size_t>(i)], image = step.step_in_epoch * batch_ + row;
      MeanProbabilities& mean = step_[static_cast<size_t>(row)];
      if (step.view == views_.first)
        mean = MeanProbabilities(images_.label(image) - shard_.classes.begin, views_, type_, scale_, targets_of(image));
      const SoftmaxSum sum = mean.start({logits.data() + i * held, static_cast<size_t>(held)});
      double* const to = sums.data<double>() + i * 2;
      to[0] = sum.largest, to[1] = sum.sum;
    }
  });
  return of_ranks(shard_, sums);
}

void Predictions::write_line(const MeanProbabilities& mean, double* to) const {
  to[kTimes] = 1;
  to[kLoss] = mean.loss();
  to[kOfLabel] = mean.of_label();
  to[kRankedLabel] = mean.ranked_label();
  const std::vector<RankedClass> ranked = mean.top(top());
  for (int t = 0; t < top(); ++t) {
    const bool is_there = t < std::ssize(ranked);
    const RankedClass one = is_there ? ranked[static_cast<size_t>(t)] : RankedClass{};
    to[kTopClasses + 2 * t] = is_there ? static_cast<double>(shard_.classes.begin + one.index) : kNoClass;
    to[kTopClasses + 2 * t + 1] = one.probability;
  }
  if (has_all()) std::ranges::copy(mean.all(), to + all_classes());
}

// lines: of one image; the line of the next rank is `stride` later. Probabilities that are no numbers have no order.
void Predictions::merge(std::span<const double> lines, int64_t stride, double* to) const {
  std::vector<RankedClass> best;
  for (int64_t first = 0; first < std::ssize(lines); first += stride) {
    const double* const line = lines.data() + first;
    for (const Field field : {kLoss, kOfLabel, kRankedLabel}) to[field] += line[field];
    for (int64_t at = all_classes(); at < fields(); ++at) to[at] += line[at];
    for (int64_t at = kTopClasses; at < all_classes() && line[at] != kNoClass; at += 2)
      best.push_back({static_cast<int>(line[at]), line[at + 1]});
  }
  to[kTimes] += 1;
  std::partial_sort(best.begin(), best.begin() + top(), best.end(), [](const RankedClass& a, const RankedClass& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.index < b.index;
  });
  for (int t = 0; t < top(); ++t) {
    to[kTopClasses + 2 * t] = std::isnan(to[kLoss]) ? kNoClass : best[static_cast<size_t>(t)].index;
    to[kTopClasses + 2 * t + 1] = best[static_cast<size_t>(t)].probability;
  }
}

int Predictions::before_label(int64_t image) const {
  if (predicted(image) == kNoClass) return std::numeric_limits<int>::max();
  const double* const of_image = line(image);
  const int label = images_.label(image);
  int before = 0;
  for (int64_t at = kTopClasses; at < all_classes(); at += 2) {
    const bool lower = static_cast<int>(of_image[at]) < label;
    before += lower ? of_image[at + 1] >= of_image[kRankedLabel] : of_image[at + 1] > of_image[kRankedLabel];
  }
  return before;
}

void Predictions::gather(Communicator& comm, Device device) {
  on_host::sum(comm, table_, device);
  for (int64_t image = 0; image < images_.size(); ++image)
    OWT_CHECK_EQ(line(image)[kTimes], 1.0, "image ", image, " must be seen once");
}

Evaluation Predictions::evaluation() const {
  Evaluation all;
  all.images = images_.size();
  for (int64_t image = 0; image < all.images; ++image) {
    all.loss += line(image)[kLoss];
    all.top1 += before_label(image) < 1;
    all.top5 += before_label(image) < 5;
  }
  const auto count = static_cast<double>(all.images);
  all.loss /= count, all.top1 /= count, all.top5 /= count;
  if (has_all()) all.average_precision = average_precision();
  return all;
}

// One class at a time, since the scores of all classes take the memory of the table again.
std::optional<double> Predictions::average_precision() const {
  const auto images = static_cast<size_t>(images_.size()), classes = static_cast<size_t>(classes_);
  std::vector<bool> positive(images * classes);
  for (size_t image = 0; image < images; ++image) {
    const std::vector<float> targets = targets_of(static_cast<int64_t>(image));
    for (size_t c = 0; c < classes; ++c) positive[image * classes + c] = targets[c] >= 0.5f;
  }
  double sum = 0;
  int counted = 0;
  for (size_t c = 0; c < classes; ++c) {
    std::vector<std::pair<double, bool>> scores;
    for (size_t image = 0; image < images; ++image) {
      const double score = line(static_cast<int64_t>(image))[all_classes() + static_cast<int64_t>(c)];
      scores.emplace_back(std::isnan(score) ? -1 : score, positive[image * classes + c]);
    }
    if (const double one = owt::average_precision(std::move(scores)); !std::isnan(one)) sum += one, ++counted;
  }
  if (counted > 0) return sum / counted;
  log_warn("there is no mAP: no image has a class, which is a target of at least 0.5");
  return {};
}

std::vector<ClassAccuracy> Predictions::by_class() const {
  const ClassNames names(images_);
  std::map<int, ClassAccuracy> classes;
  std::map<std::pair<int, int>, int64_t> taken;  // key: label and a wrong class
  for (int64_t image = 0; image < images_.size(); ++image) {
    const int label = images_.label(image);
    ClassAccuracy& own = classes[label];
    ++own.images;
    own.top1 += before_label(image) < 1;
    own.top5 += before_label(image) < 5;
    if (const int c = predicted(image); c != label && c != kNoClass) ++taken[{label, c}];
  }
  for (const auto& [pair, times] : taken)
    if (ClassAccuracy& own = classes[pair.first]; times > own.times)
      own.times = times, own.taken_for = names.of(pair.second);
  std::vector<ClassAccuracy> all;
  for (auto& [label, own] : classes) {
    own.name = names.of(label);
    own.number = label;
    all.push_back(std::move(own));
  }
  return all;
}

void Predictions::write_csv(const std::string& path) const {
  const ClassNames names(images_);
  TextFile file(path);
  file.add("index,name,label,label_name");
  for (int t = 1; t <= top(); ++t) file.add(format(",top{0},top{0}_name,top{0}_probability", t));
  file.add(",label_probability\n");
  for (int64_t image = 0; image < images_.size(); ++image) {
    const int label = images_.label(image);
    std::string text = format("{},{},{},{}", image, csv_quoted(images_.name(image)), label, names.quoted(label));
    for (int t = 0; t < top(); ++t) {
      const double* const ranked = line(image) + kTopClasses + 2 * t;
      const int c = static_cast<int>(ranked[0]);
      text += format(",{},{},{:.9g}", number_of(c), names.quoted(c), ranked[1]);
    }
    file.add(text + format(",{:.9g}\n", line(image)[kOfLabel]));
  }
  file.close();
}

void Predictions::write_confusion_csv(const std::string& path) const {
  // sorted, so that equal pairs are adjacent; a table would need classes squared
  std::vector<std::pair<int, int>> pairs;
  for (int64_t image = 0; image < images_.size(); ++image) pairs.emplace_back(images_.label(image), predicted(image));
  std::sort(pairs.begin(), pairs.end());
  const ClassNames names(images_);
  TextFile file(path);
  file.add("label,label_name,predicted,predicted_name,count\n");
  for (auto pair = pairs.begin(); pair != pairs.end();) {
    const auto next = std::upper_bound(pair, pairs.end(), *pair);
    const auto [label, taken] = *pair;
    file.add(
        format("{},{},{},{},{}\n", label, names.quoted(label), number_of(taken), names.quoted(taken), next - pair));
    pair = next;
  }
  file.close();
}

}  // namespace owt
