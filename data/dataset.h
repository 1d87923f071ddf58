// Labelled images, by index.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/jpeg/image_window.h"
#include "src/core/shape.h"
#include "src/system/check.h"

namespace owt {

// kTrain and kTest are files of the data set; kValidation is a part of the training images that a recipe holds out
// (data/held_out.h).
enum class Split { kTrain, kTest, kValidation };
const char* name_of(Split split);  // on the command line and in files: train, test, val
const char* kind_of(Split split);  // kind of its images: training, test, validation

// The view of a sample. In training its place, size, mirroring and colour depend on (seed, epoch, index of the sample)
// only; in evaluation the view is one of the views in Views.
struct View {
  bool training = false;
  uint64_t seed = 0;  // in training
  int64_t epoch = 0;  // in training; with class-balanced sampling the pass (data/order.h)
  // In evaluation: 0 centre, 1 to 4 the corners in reading order, 5 to 9 the same, mirrored. 10 centre, 12 one pixel up
  // and left of it, 14 one pixel down and right; 11, 13 and 15 the same, mirrored.
  int number = 0;

  int place() const {  // 0 centre, 1 to 4 corners, 5 up and left of the centre, 6 down and right
    return number < 10 ? number % 5 : number < 12 ? 0 : number / 2 - 1;
  }
  bool mirrored() const { return number < 10 ? number >= 5 : number % 2 == 1; }
};
constexpr int kMostViews = 10, kViewNumbers = 16;

// The views of an image that form one prediction: `count` of View::number from `first` on.
struct Views {
  int first = 0, count = 1;

  // The first of the ten views of Krizhevsky et al. 2012, section 4.1; their probabilities are averaged.
  Views(int crops = 1) : count(crops) {}
  // The image and its mirror image; their logits are averaged. Jordan 2024 (airbench), tta = 1.
  static Views mirror() { return {10, 2}; }
  // mirror(), also for the image shifted by one pixel up and left, and down and right; the unshifted image has as much
  // weight as the other two together. Jordan 2024, tta = 2, except that the border is padding here and a reflection
  // there.
  static Views shift() { return {10, 6}; }

  bool average_logits() const { return first > 0; }
  double weight(int view) const { return count == 6 ? (view < 2 ? 0.25 : 0.125) : 1.0 / count; }  // sum: 1
  std::string name() const { return first == 0 ? std::to_string(count) : count == 2 ? "mirror" : "shift"; }
  bool valid() const { return count >= 1 && first + count <= (first == 0 ? kMostViews : kViewNumbers); }

 private:
  Views(int begin, int views) : first(begin), count(views) {}
};

// A record without the expected image.
class CorruptRecord : public Error {
 public:
  using Error::Error;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual Shape image() const = 0;  // H x W x C of the images that read() returns
  virtual int classes() const = 0;
  virtual int label(int64_t index) const = 0;                // [0, classes)
  virtual std::vector<std::string> class_names() const = 0;  // one per class; empty if unknown
  // The classes as lines of a classes.txt, which separate a class's key from its description: KEY, or KEY, a tab and
  // words.
  virtual std::vector<std::string> class_lines() const { return class_names(); }
  // Covers all stored images and labels in their order; two copies of a data set have the same checksum.
  virtual uint64_t checksum() const = 0;
  virtual std::string name(int64_t) const { return {}; }  // the sample's source; empty if unknown
  // The classes that have a target beside the label (src/core/row_label.h): a network's classes, or 0: there are none.
  virtual int64_t targets() const { return 0; }
  virtual void write_targets(int64_t, int32_t*) const {}  // bits_of_target() of each

  // H x W x C bytes; may be called from many threads at once. A data set whose images differ in size returns the part
  // that the view shows (mirroring and colour are left to Augmenter). Others return the whole image for every view.
  // Throws CorruptRecord.
  virtual void read(int64_t index, const View& view, uint8_t* pixels) const = 0;
  virtual bool depends_on_view() const { return false; }

  // For a GPU that decodes: as read(), or writes the JPEG file of the sample instead, and says so. A file has at most
  // as many bytes as the pixels.
  virtual FileRow read_jpeg(int64_t index, const View& view, uint8_t* bytes) const {
    read(index, view, bytes);
    return {};
  }
  // The most pixels of an image whose file read_jpeg() may write; 0: it writes none.
  virtual int64_t most_pixels_of_files() const { return 0; }
};

// A line of a classes.txt, `key` or `key<TAB>words`, for people: the tab becomes a blank.
std::string shown_class(std::string line);
std::string class_key(const std::string& line);  // may contain blanks
// "'ant', 'bee' and 7 more", from lines of a classes.txt.
std::string some_classes(const std::vector<std::string>& lines);

// The number of images of each class.
std::vector<int64_t> images_of_classes(const Dataset& dataset);

// What sampling = "balanced" does with these training images: "every class 30 times in an epoch: an image of 'ant' (1
// image) 30 times, one of 'bee' (96 images) 0.31 times". Empty: all classes have equally many images.
std::string balance_text(const Dataset& train);

// "2 of 7 classes have no training images: 'ant', 'bee'; 12 of 400 test images are of these". Empty: all classes have
// training images. evaluated: images with the same classes; kind: of these images.
std::string untrained_text(const Dataset& train, const Dataset& evaluated, const std::string& kind);

// Writes a row of LabelRows that is not mixed: the label, and the targets if there are any.
void write_label(const Dataset& dataset, int64_t index, int32_t* to);

// Reads images, as the centre view shows them, and rows of write_label() into consecutive memory, with the calling
// rank's team of threads. Throws the errors of reading.
void read_images(const Dataset& dataset, Slice images, uint8_t* pixels, int32_t* labels);

}  // namespace owt
