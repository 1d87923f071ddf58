#include "data/dataset.h"

#include <algorithm>
#include <utility>

#include "data/parallel.h"
#include "src/core/row_label.h"
#include "src/system/log.h"
#include "src/system/printable.h"

namespace owt {
namespace {

std::vector<std::string> names_of(const Dataset& images) {
  std::vector<std::string> names = images.class_lines();
  for (size_t c = names.size(); std::cmp_less(c, images.classes()); ++c) names.push_back(std::to_string(c));
  return names;
}

std::string times_text(double times) { return format("{:.{}f} times", times, times < 10 ? 2 : 0); }

}  // namespace

const char* name_of(Split split) { return split == Split::kTrain ? "train" : split == Split::kTest ? "test" : "val"; }

const char* kind_of(Split split) {
  return split == Split::kTrain ? "training" : split == Split::kTest ? "test" : "validation";
}

std::string shown_class(std::string line) {
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line;
}

std::string class_key(const std::string& line) { return line.substr(0, line.find('\t')); }

std::string some_classes(const std::vector<std::string>& lines) {
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(lines.size(), kShown); ++i)
    text += concat(i > 0 ? ", '" : "'", printable(shown_class(lines[i])), "'");
  return lines.size() > kShown ? concat(text, " and ", lines.size() - kShown, " more") : text;
}

std::vector<int64_t> images_of_classes(const Dataset& dataset) {
  std::vector<int64_t> counts(static_cast<size_t>(dataset.classes()));
  for (int64_t i = 0; i < dataset.size(); ++i) ++counts[static_cast<size_t>(dataset.label(i))];
  return counts;
}

std::string balance_text(const Dataset& train) {
  const std::vector<int64_t> counts = images_of_classes(train);
  std::vector<size_t> classes;  // classes that have images
  for (size_t c = 0; c < counts.size(); ++c)
    if (counts[c] > 0) classes.push_back(c);
  if (classes.empty()) return "";
  const auto [least, most] =
      std::ranges::minmax_element(classes, [&](size_t a, size_t b) { return counts[a] < counts[b]; });
  if (counts[*least] == counts[*most]) return "";
  const std::vector<std::string> names = names_of(train);
  const double each = static_cast<double>(train.size()) / static_cast<double>(classes.size());
  const auto image_of = [&](size_t c) {
    return format("of {} ({} image{}) {}", some_classes({names[c]}), counts[c], counts[c] == 1 ? "" : "s",
                  times_text(each / static_cast<double>(counts[c])));
  };
  return format("every class {} in an epoch: an image {}, one {}", times_text(each), image_of(*least), image_of(*most));
}

namespace {

// The images with each class: with the label, or with a target above 0.
std::vector<int64_t> images_with_classes(const Dataset& dataset) {
  if (dataset.targets() == 0) return images_of_classes(dataset);
  std::vector<int64_t> counts(static_cast<size_t>(dataset.targets()));
  std::vector<int32_t> targets(counts.size());
  for (int64_t i = 0; i < dataset.size(); ++i) {
    dataset.write_targets(i, targets.data());
    for (size_t c = 0; c < counts.size(); ++c) counts[c] += target_of(targets[c]) > 0;
  }
  counts.resize(static_cast<size_t>(dataset.classes()));
  return counts;
}

}  // namespace

std::string untrained_text(const Dataset& train, const Dataset& evaluated, const std::string& kind) {
  const std::vector<int64_t> counts = images_with_classes(train), of_evaluated = images_with_classes(evaluated);
  const std::vector<std::string> names = names_of(train);
  std::vector<std::string> missing;
  int64_t images = 0;
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] > 0) continue;
    missing.push_back(names[c]);
    images += c < of_evaluated.size() ? of_evaluated[c] : 0;
  }
  if (missing.empty()) return "";
  const std::string of_them =
      images == 0 ? "" : format("; {} of {} {} images are of these", images, evaluated.size(), kind);
  return format("{} of {} classes {} no training images: {}{}", missing.size(), counts.size(),
                missing.size() == 1 ? "has" : "have", some_classes(missing), of_them);
}

void write_label(const Dataset& dataset, int64_t index, int32_t* to) {
  to[0] = dataset.label(index);
  dataset.write_targets(index, to + 1);
}

void read_images(const Dataset& dataset, Slice images, uint8_t* pixels, int32_t* labels) {
  const int64_t elements = dataset.image().elements(), numbers = 1 + dataset.targets();
  parallel_for_or_throw(images.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      dataset.read(images.begin + i, View{}, pixels + i * elements);
      write_label(dataset, images.begin + i, labels + i * numbers);
    }
  });
}

}  // namespace owt
