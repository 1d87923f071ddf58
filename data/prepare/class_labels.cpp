#include "data/prepare/class_labels.h"

#include <algorithm>

#include "data/dataset.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int32_t kSeveral = -2;

// Checks a line of classes.txt.
void check_class_line(const std::string& line) {
  const size_t tab = line.find('\t');
  if (line.empty() || tab == 0) fail("a class has no name");
  if (has_control_characters(class_key(line)) ||
      (tab != std::string::npos && has_control_characters(line.substr(tab + 1))))
    fail("the class '", line, "' has control characters in its name");
}

}  // namespace

bool has_control_characters(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

ClassLabels::ClassLabels(const std::vector<std::string>& classes) {
  for (size_t i = 0; i < classes.size(); ++i)
    if (const auto [at, added] = labels_.emplace(class_key(classes[i]), static_cast<int32_t>(i)); !added)
      at->second = kSeveral;
}

int32_t ClassLabels::of(const std::string& key) const {
  const auto found = labels_.find(key);
  if (found == labels_.end()) return -1;
  if (found->second == kSeveral) fail("several classes are called '", key, "'");
  return found->second;
}

std::vector<std::string> with_words(std::vector<std::string> keys, const std::vector<std::string>& names) {
  std::map<std::string, std::string> words;
  for (const std::string& key : keys) words[class_key(key)];
  for (const std::string& line : names) {
    size_t end = line.size();
    while (end != std::string::npos && end > 0 && !words.contains(line.substr(0, end)))
      end = line.find_last_of(" \t", end - 1);
    if (end == std::string::npos || end == 0) continue;
    const size_t begin = line.find_first_not_of(" \t", end);
    if (begin == std::string::npos) continue;
    std::string& there = words[line.substr(0, end)];
    if (!there.empty() && there != line.substr(begin)) fail("two lines of names for class '", line.substr(0, end), "'");
    there = line.substr(begin);
  }
  bool any = names.empty();
  for (std::string& key : keys)
    if (const std::string& there = words[class_key(key)]; !there.empty()) {
      key = class_key(key) + "\t" + there;
      any = true;
    }
  if (!any) fail("no line of the names begins with the name of a class (", first_names(keys), ")");
  return keys;
}

void agree_on_classes(PhotoSources& sources, const std::vector<std::string>& lines, std::vector<std::string>& classes,
                      const std::string& path) {
  if (classes.empty()) {
    for (const std::string& line : lines) check_class_line(line);
    sources.classes = classes = lines;
  }
  if (sources.classes == classes) return;
  const ClassLabels known(classes);
  std::vector<int64_t> images(sources.classes.size());
  for (const PhotoSource& photo : sources.photos) {
    ++images[photo.label];
    for (const ClassTarget& of : photo.targets) images[of.label] += of.label != photo.label;
  }
  std::vector<int32_t> labels(images.size(), -1);
  std::vector<std::string> missing;
  int64_t of_missing = 0;
  for (size_t c = 0; c < images.size(); ++c) {
    if (images[c] == 0) continue;
    labels[c] = known.of(class_key(sources.classes[c]));
    if (labels[c] < 0) missing.push_back(class_key(sources.classes[c])), of_missing += images[c];
  }
  if (!missing.empty())
    fail(missing.size() == 1 ? "class " : "the classes ", some_classes(missing), " (", of_missing,
         of_missing == 1 ? " image) " : " images) ", missing.size() == 1 ? "is" : "are", " not in ", path,
         ", whose lines are a class or a class, a tab and words; prepare the split that has all classes first, or the "
         "only split with --force; or name the classes of both splits in a file for --classes");
  for (PhotoSource& photo : sources.photos) {
    photo.label = labels[photo.label];
    for (ClassTarget& of : photo.targets) of.label = labels[of.label];
  }
  sources.classes = classes;
}

}  // namespace owt
