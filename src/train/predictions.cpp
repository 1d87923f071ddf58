#include "src/train/predictions.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "layers/loss/add_softmax.h"
#include "src/comm/on_host.h"
#include "src/core/threads.h"
#include "src/system/files.h"
#include "src/system/log.h"

namespace owt {
namespace {

constexpr size_t kPiece = 1 << 16;  // bytes of text to write at a time

// A field of a CSV line (RFC 4180).
std::string csv_quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

// log(exp(a) + exp(b)) without overflow.
double log_sum(double a, double b) {
  const double high = std::max(a, b), low = std::min(a, b);
  return std::isinf(high) ? high : high + std::log1p(std::exp(low - high));
}

// log(1 / (1 + exp(-x))) without overflow.
double log_of_unit(double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x))); }

}  // namespace

void MeanProbabilities::add(std::span<const float> logits) {
  const int view = views_++;
  const bool averages = of_.average_logits();
  if (!averages && scale_ == 1) return add_view(logits);
  OWT_CHECK(!averages || (view < of_.count && (view == 0 || logits_.size() == logits.size())));
  if (!averages) logits_.clear();
  logits_.resize(logits.size());
  const double weight = averages ? scale_ * of_.weight(view) : scale_;
  for (size_t c = 0; c < logits.size(); ++c) logits_[c] += weight * static_cast<double>(logits[c]);
  if (!averages || views_ == of_.count) add_view(std::span<const double>(logits_));
}

template <class T>
void MeanProbabilities::add_view(std::span<const T> logits) {
  OWT_CHECK(summands_ == 0 || sums_.size() == logits.size());
  sums_.resize(logits.size());
  if (type_ == LossType::kLogistic)
    add_units(logits);
  else
    add_softmax_of(logits);
  ++summands_;
}

template <class T>
void MeanProbabilities::add_units(std::span<const T> logits) {
  constexpr double kNone = -HUGE_VAL;
  if (label_ >= 0 && summands_ == 0) log_sum_of_label_ = kNone, log_sums_of_rest_.assign(logits.size(), kNone);
  for (size_t c = 0; c < logits.size(); ++c) {
    const auto x = static_cast<double>(logits[c]);
    sums_[c] += 1 / (1 + std::exp(-x));
    if (label_ >= 0) log_sums_of_rest_[c] = log_sum(log_sums_of_rest_[c], log_of_unit(-x));
  }
  if (label_ < 0) return;
  const double own = static_cast<double>(logits[static_cast<size_t>(label_)]);
  log_sum_of_label_ = log_sum(log_sum_of_label_, log_of_unit(own));
}

template <class T>
void MeanProbabilities::add_softmax_of(std::span<const T> logits) {
  const double log_sum_of_all = add_softmax(logits, sums_);
  if (label_ < 0) return;
  const double own = static_cast<double>(logits[static_cast<size_t>(label_)]) - log_sum_of_all;
  log_sum_of_label_ = summands_ == 0 ? own : log_sum(log_sum_of_label_, own);
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

double MeanProbabilities::of_label() const { return std::exp(log_mean(log_sum_of_label_)); }

double MeanProbabilities::loss() const {
  double loss = -log_mean(log_sum_of_label_);
  for (size_t c = 0; c < log_sums_of_rest_.size(); ++c)
    if (c != static_cast<size_t>(label_)) loss -= log_mean(log_sums_of_rest_[c]);
  return loss;
}

int MeanProbabilities::before_label() const {
  const auto label = sums_.begin() + label_;
  const double own = *label;
  return static_cast<int>(std::count_if(sums_.begin(), label, [&](double sum) { return sum >= own; }) +
                          std::count_if(label, sums_.end(), [&](double sum) { return sum > own; }));
}

Predictions::Predictions(const Dataset& images, int classes, const Views& views, int64_t batch, LossType type,
                         double scale)
    : images_(images), classes_(classes), views_(views), batch_(batch), type_(type), scale_(scale) {
  step_.resize(static_cast<size_t>(batch));
  table_ = Tensor({images.size(), fields()}, DType::kF64);
  table_.zero();
}

void Predictions::add(const Batch& step, std::span<const int64_t> rows, const Tensor& logits) {
  const int64_t count = std::ssize(rows), first = step.step_in_epoch * batch_;
  OWT_CHECK_EQ(logits.elements(), count * classes_);
  constexpr int64_t kGrain = 8;
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = rows[static_cast<size_t>(i)], image = first + row;
      MeanProbabilities& mean = step_[static_cast<size_t>(row)];
      if (step.view == views_.first) mean = MeanProbabilities(images_.label(image), views_, type_, scale_);
      mean.add({logits.data() + i * classes_, static_cast<size_t>(classes_)});
      if (mean.views() == views_.count) note(image, mean);
    }
  });
}

void Predictions::note(int64_t image, const MeanProbabilities& mean) {
  double* const to = line(image);
  to[kTimes] += 1;
  to[kLoss] = mean.loss();
  to[kOfLabel] = mean.of_label();
  to[kBeforeLabel] = mean.before_label();
  int field = kTopClasses;
  for (const RankedClass& ranked : mean.top(top())) {
    to[field++] = ranked.index;
    to[field++] = ranked.probability;
  }
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
    all.top1 += line(image)[kBeforeLabel] < 1;
    all.top5 += line(image)[kBeforeLabel] < 5;
  }
  const auto count = static_cast<double>(all.images);
  all.loss /= count, all.top1 /= count, all.top5 /= count;
  return all;
}

std::vector<ClassAccuracy> Predictions::by_class() const {
  const std::vector<std::string> names = class_names();
  std::map<int, ClassAccuracy> classes;
  std::map<std::pair<int, int>, int64_t> taken;  // key: label and a wrong class
  for (int64_t image = 0; image < images_.size(); ++image) {
    const int label = images_.label(image);
    ClassAccuracy& own = classes[label];
    ++own.images;
    own.top1 += line(image)[kBeforeLabel] < 1;
    own.top5 += line(image)[kBeforeLabel] < 5;
    if (predicted(image) != label) ++taken[{label, predicted(image)}];
  }
  for (const auto& [pair, times] : taken)
    if (ClassAccuracy& own = classes[pair.first]; times > own.times)
      own.times = times, own.taken_for = names[static_cast<size_t>(pair.second)];
  std::vector<ClassAccuracy> all;
  for (auto& [label, own] : classes) {
    own.name = names[static_cast<size_t>(label)];
    own.number = label;
    all.push_back(std::move(own));
  }
  return all;
}

std::vector<std::string> Predictions::class_names() const {
  std::vector<std::string> names = images_.class_names();
  while (std::ssize(names) < classes_) names.push_back(std::to_string(names.size()));
  return names;
}

std::vector<std::string> Predictions::quoted_class_names() const {
  std::vector<std::string> names = class_names();
  for (std::string& name : names) name = csv_quoted(name);
  return names;
}

void Predictions::write_csv(const std::string& path) const {
  const std::vector<std::string> names = quoted_class_names();
  const auto name_of = [&](int c) -> const std::string& { return names[static_cast<size_t>(c)]; };
  std::string text = "index,name,label,label_name";
  for (int t = 1; t <= top(); ++t) text += format(",top{0},top{0}_name,top{0}_probability", t);
  text += ",label_probability\n";
  AtomicFileWriter file(path);
  for (int64_t image = 0; image < images_.size(); ++image) {
    const int label = images_.label(image);
    text += format("{},{},{},{}", image, csv_quoted(images_.name(image)), label, name_of(label));
    for (int t = 0; t < top(); ++t) {
      const double* const ranked = line(image) + kTopClasses + 2 * t;
      const int c = static_cast<int>(ranked[0]);
      text += format(",{},{},{:.9g}", c, name_of(c), ranked[1]);
    }
    text += format(",{:.9g}\n", line(image)[kOfLabel]);
    if (text.size() < kPiece) continue;
    file.write(text);
    text.clear();
  }
  file.write(text);
  file.close();
}

void Predictions::write_confusion_csv(const std::string& path) const {
  // sorted, so that equal pairs are adjacent; a table would need classes squared
  std::vector<std::pair<int, int>> pairs;
  for (int64_t image = 0; image < images_.size(); ++image) pairs.emplace_back(images_.label(image), predicted(image));
  std::sort(pairs.begin(), pairs.end());
  const std::vector<std::string> names = quoted_class_names();
  const auto name_of = [&](int c) -> const std::string& { return names[static_cast<size_t>(c)]; };
  std::string text = "label,label_name,predicted,predicted_name,count\n";
  for (auto pair = pairs.begin(); pair != pairs.end();) {
    const auto next = std::upper_bound(pair, pairs.end(), *pair);
    const auto [label, taken] = *pair;
    text += format("{},{},{},{},{}\n", label, name_of(label), taken, name_of(taken), next - pair);
    pair = next;
  }
  write_file_atomically(path, text);
}

}  // namespace owt
