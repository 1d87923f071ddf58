#include "data/relabelled.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <utility>

#include "src/core/row_label.h"
#include "src/system/csv.h"
#include "src/system/files.h"

namespace owt {
namespace {

class SameImages : public Dataset {
 public:
  explicit SameImages(std::shared_ptr<const Dataset> images) : images_(std::move(images)) {}

  int64_t size() const override { return images_->size(); }
  Shape image() const override { return images_->image(); }
  int classes() const override { return images_->classes(); }
  std::vector<std::string> class_names() const override { return images_->class_names(); }
  std::vector<std::string> class_lines() const override { return images_->class_lines(); }
  uint64_t checksum() const override { return images_->checksum(); }
  std::string name(int64_t index) const override { return images_->name(index); }
  int64_t targets() const override { return images_->targets(); }
  void read(int64_t index, const View& view, uint8_t* pixels) const override { images_->read(index, view, pixels); }
  bool depends_on_view() const override { return images_->depends_on_view(); }
  FileRow read_jpeg(int64_t index, const View& view, uint8_t* bytes) const override {
    return images_->read_jpeg(index, view, bytes);
  }
  int64_t most_pixels_of_files() const override { return images_->most_pixels_of_files(); }

 protected:
  std::shared_ptr<const Dataset> images_;
};

class Relabelled : public SameImages {
 public:
  Relabelled(std::shared_ptr<const Dataset> images, std::vector<int> outputs, std::vector<std::string> class_lines)
      : SameImages(std::move(images)), outputs_(std::move(outputs)), class_lines_(std::move(class_lines)) {
    OWT_CHECK_EQ(std::ssize(outputs_), images_->classes());
    for (const int output : outputs_) OWT_CHECK(0 <= output && output < std::ssize(class_lines_), "label ", output);
  }

  int classes() const override { return static_cast<int>(class_lines_.size()); }
  int label(int64_t index) const override { return outputs_[images_->label(index)]; }
  std::vector<std::string> class_names() const override {
    std::vector<std::string> names;
    for (const std::string& line : class_lines_) names.push_back(shown_class(line));
    return names;
  }
  std::vector<std::string> class_lines() const override { return class_lines_; }
  void write_targets(int64_t index, int32_t* to) const override {
    if (targets() == 0) return;
    std::vector<int32_t> row(targets());
    images_->write_targets(index, row.data());
    std::fill_n(to, targets(), bits_of_target(0));
    for (size_t c = 0; c < outputs_.size(); ++c) to[outputs_[c]] = row[c];
  }

 private:
  std::vector<int> outputs_;
  std::vector<std::string> class_lines_;
};

class WithTargets : public SameImages {
 public:
  // values: images x classes of the images.
  WithTargets(std::shared_ptr<const Dataset> images, std::vector<float> values, int64_t targets)
      : SameImages(std::move(images)), values_(std::move(values)), targets_(targets) {}

  int label(int64_t index) const override {
    return static_cast<int>(std::max_element(row(index), row(index + 1)) - row(index));
  }
  uint64_t checksum() const override {
    return images_->checksum() ^
           checksum_of({reinterpret_cast<const char*>(values_.data()), values_.size() * sizeof(float)});
  }
  int64_t targets() const override { return targets_; }
  void write_targets(int64_t index, int32_t* to) const override {
    std::fill(std::transform(row(index), row(index + 1), to, bits_of_target), to + targets_, bits_of_target(0));
  }

 private:
  const float* row(int64_t index) const { return values_.data() + index * classes(); }

  std::vector<float> values_;
  int64_t targets_;
};

// Reads the file that with_targets() describes.
class TargetTable {
 public:
  TargetTable(const Dataset& images, const std::string& path, bool sum_to_1)
      : images_(images),
        path_(path),
        sum_to_1_(sum_to_1),
        values_(images.size() * images.classes()),
        seen_(images.size()) {
    read_csv_rows(read_file(path), [&](const CsvRow& row) { ++line_ == 1 ? read_header(row) : read_line(row); });
    if (line_ == 0) fail(path_, " is empty; its first line is `index` or `name`, and the classes");
    const auto missing = std::ranges::find(seen_, 0) - seen_.begin();
    if (missing < images.size())
      fail(path_, " has no line for ", std::ranges::count(seen_, 0), " of ", images.size(), " images, first for ",
           by_name_ ? images.name(missing) : concat("image ", missing));
  }
  std::vector<float> values() && { return std::move(values_); }

 private:
  template <class... Parts>
  [[noreturn]] void fail_here(const Parts&... parts) const {
    fail(path_, ":", line_, ": ", parts...);
  }

  void read_header(const CsvRow& fields) {
    by_name_ = fields[0] == "name";
    if (!by_name_ && fields[0] != "index")
      fail_here("the first column is '", fields[0],
                "', wanted index (images are numbered from 0) or name (of a photograph's file)");
    for (int64_t i = 0; by_name_ && i < images_.size(); ++i)
      if (const std::string name = images_.name(i); name.empty())
        fail_here("these images have no names; make the first column index, which numbers them from 0");
      else if (!images_by_name_.emplace(name, i).second)
        fail_here("several images are called '", name, "'; make the first column index");
    std::map<std::string, int> classes;
    std::vector<std::string> keys = images_.class_lines();
    for (int c = static_cast<int>(keys.size()); c < images_.classes(); ++c) keys.push_back(std::to_string(c));
    for (size_t c = 0; c < keys.size(); ++c)
      if (!classes.emplace(class_key(keys[c]), static_cast<int>(c)).second)
        fail_here("several classes are called '", class_key(keys[c]), "'");
    for (size_t column = 1; column < fields.size(); ++column) {
      const auto found = classes.find(fields[column]);
      if (found == classes.end())
        fail_here("column '", fields[column], "' is no class (", some_classes(keys), "), or it comes a second time");
      columns_.push_back(found->second);
      classes.erase(found);
    }
    if (!classes.empty()) fail_here("there is no column of class '", classes.begin()->first, "'");
  }

  void read_line(const CsvRow& fields) {
    if (fields == CsvRow{""}) return;  // an empty line
    if (fields.size() != columns_.size() + 1)
      fail_here("found ", fields.size(), " fields, wanted ", columns_.size() + 1, ": the image and ", columns_.size(),
                " targets");
    const int64_t image = image_of(fields[0]);
    if (seen_[image]++) fail_here("image ", fields[0], " comes a second time");
    double sum = 0;
    for (size_t column = 0; column < columns_.size(); ++column) {
      const double value = target(fields[column + 1]);
      values_[image * images_.classes() + columns_[column]] = static_cast<float>(value);
      sum += value;
    }
    if (constexpr double kExact = 1e-3; sum_to_1_ && std::abs(sum - 1) > kExact)
      fail_here("the targets add up to ", sum,
                ", wanted 1 for the softmax; images with several labels or none need loss.type = \"logistic\"");
  }

  int64_t image_of(const std::string& field) const {
    if (by_name_) {
      const auto found = images_by_name_.find(field);
      if (found == images_by_name_.end()) fail_here("no image is called '", field, "'");
      return found->second;
    }
    int64_t index = -1;
    const char* const end = field.data() + field.size();
    const auto [rest, error] = std::from_chars(field.data(), end, index);
    if (error != std::errc() || rest != end || index < 0 || index >= images_.size())
      fail_here("'", field, "' is no image, wanted 0 to ", images_.size() - 1);
    return index;
  }

  double target(const std::string& field) const {
    double value = -1;
    const char* const end = field.data() + field.size();
    const auto [rest, error] = std::from_chars(field.data(), end, value);
    if (error != std::errc() || rest != end || !(value >= 0 && value <= 1))
      fail_here("'", field, "' is no target, wanted a number from 0 to 1");
    return value;
  }

  const Dataset& images_;
  const std::string& path_;
  bool sum_to_1_, by_name_ = false;
  std::map<std::string, int64_t> images_by_name_;
  std::vector<int> columns_;  // the class of each
  std::vector<float> values_;
  std::vector<char> seen_;  // images that have had their line
  int64_t line_ = 0;
};

}  // namespace

std::shared_ptr<const Dataset> relabelled(std::shared_ptr<const Dataset> images, std::vector<int> outputs,
                                          std::vector<std::string> class_lines) {
  return std::make_shared<Relabelled>(std::move(images), std::move(outputs), std::move(class_lines));
}

std::string targets_path(const std::string& folder, Split split) {
  return (std::filesystem::path(folder) / concat("targets_", name_of(split), ".csv")).string();
}

std::shared_ptr<const Dataset> with_targets(std::shared_ptr<const Dataset> images, const std::string& path,
                                            int64_t classes, bool sum_to_1) {
  if (!std::filesystem::exists(path))
    fail("no file ", path,
         " with the targets of these images, which data.targets wants: lines `index` or `name` and the "
         "classes, then the image and a number from 0 to 1 for each class; owt prepare list makes it");
  std::vector<float> values = TargetTable(*images, path, sum_to_1).values();
  const int64_t targets = std::max<int64_t>(classes, images->classes());
  return std::make_shared<WithTargets>(std::move(images), std::move(values), targets);
}

}  // namespace owt
