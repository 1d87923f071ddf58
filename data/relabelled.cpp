#include "data/relabelled.h"

#include <utility>

namespace owt {
namespace {

class Relabelled : public Dataset {
 public:
  Relabelled(std::shared_ptr<const Dataset> images, std::vector<int> outputs, std::vector<std::string> class_lines)
      : images_(std::move(images)), outputs_(std::move(outputs)), class_lines_(std::move(class_lines)) {
    OWT_CHECK_EQ(std::ssize(outputs_), images_->classes());
    for (const int output : outputs_) OWT_CHECK(0 <= output && output < std::ssize(class_lines_), "label ", output);
  }

  int64_t size() const override { return images_->size(); }
  Shape image() const override { return images_->image(); }
  int classes() const override { return static_cast<int>(class_lines_.size()); }
  int label(int64_t index) const override { return outputs_[images_->label(index)]; }
  std::vector<std::string> class_names() const override {
    std::vector<std::string> names;
    for (const std::string& line : class_lines_) names.push_back(shown_class(line));
    return names;
  }
  std::vector<std::string> class_lines() const override { return class_lines_; }
  uint64_t checksum() const override { return images_->checksum(); }
  std::string name(int64_t index) const override { return images_->name(index); }
  void read(int64_t index, const View& view, uint8_t* pixels) const override { images_->read(index, view, pixels); }
  bool depends_on_view() const override { return images_->depends_on_view(); }
  FileRow read_jpeg(int64_t index, const View& view, uint8_t* bytes) const override {
    return images_->read_jpeg(index, view, bytes);
  }
  int64_t most_pixels_of_files() const override { return images_->most_pixels_of_files(); }

 private:
  std::shared_ptr<const Dataset> images_;
  std::vector<int> outputs_;
  std::vector<std::string> class_lines_;
};

}  // namespace

std::shared_ptr<const Dataset> relabelled(std::shared_ptr<const Dataset> images, std::vector<int> outputs,
                                          std::vector<std::string> class_lines) {
  return std::make_shared<Relabelled>(std::move(images), std::move(outputs), std::move(class_lines));
}

}  // namespace owt
