// The classes of a data set: the lines of its classes.txt, and their labels.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/prepare/photo_sources.h"

namespace owt {

bool has_control_characters(const std::string& text);

// Labels of classes by key.
class ClassLabels {
 public:
  explicit ClassLabels(const std::vector<std::string>& classes);  // lines of a classes.txt

  int32_t of(const std::string& key) const;  // -1: no class has it; throws Error if several have

 private:
  std::map<std::string, int32_t> labels_{};  // kSeveral: several classes have the key
};

// Lines `key<TAB>words` with the words of `names`, whose lines are `key words`. Each of these lines belongs to the
// longest key that it starts with. Throws Error for two lines of one key, and if there are names but none belongs to a
// key.
std::vector<std::string> with_words(std::vector<std::string> keys, const std::vector<std::string>& names);

// Gives each photo the label of its class in `classes`, the lines of a classes.txt. If `classes` is empty, it becomes
// `lines`, one per class of the sources. Throws Error naming missing classes; `path` is the path of that file.
void agree_on_classes(PhotoSources& sources, const std::vector<std::string>& lines, std::vector<std::string>& classes,
                      const std::string& path);

}  // namespace owt
