// Labelled images, by index.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/check.h"
#include "src/core/shape.h"

namespace owt {

// Data sets have files of the first two; kValidation are training images that a recipe holds out (data/held_out.h).
enum class Split { kTrain, kTest, kValidation };
const char* name_of(Split split);  // on the command line and in files: train, test, val
const char* kind_of(Split split);  // of images: training, test, validation

// How a sample is seen. In training its place, size, mirroring and colour are a function of (seed, epoch, index of the
// sample); in evaluation it is one of those that Views brings together.
struct View {
  bool training = false;
  uint64_t seed = 0;  // in training
  int64_t epoch = 0;  // in training
  // In evaluation: 0 centre, 1 to 4 the corners in reading order, 5 to 9 the same, mirrored; 10 centre, 12 a pixel up
  // and left of it, 14 a pixel down and right; 11, 13 and 15 the same, mirrored.
  int number = 0;

  int place() const {  // 0 centre, 1 to 4 corners, 5 up and left of the centre, 6 down and right
    return number < 10 ? number % 5 : number < 12 ? 0 : number / 2 - 1;
  }
  bool mirrored() const { return number < 10 ? number >= 5 : number % 2 == 1; }
};
constexpr int kMostViews = 10, kViewNumbers = 16;

// The views of an image that one answer is made of: so many of View::number, one after the other.
struct Views {
  int first = 0, count = 1;

  // The first ones of the ten of Krizhevsky et al. 2012, section 4.1; their probabilities are averaged.
  Views(int crops = 1) : count(crops) {}
  // The image and its mirror image; their logits are averaged. Jordan 2024 (airbench), tta = 1.
  static Views mirror() { return {10, 2}; }
  // The same of the image, and of what is seen a pixel up and left, and down and right, of it; the image counts as much
  // as both together. Jordan 2024, tta = 2, but for the image's border, which is reflected there and padding here.
  static Views shift() { return {10, 6}; }

  bool average_logits() const { return first > 0; }
  double weight(int view) const { return count == 6 ? (view < 2 ? 0.25 : 0.125) : 1.0 / count; }  // sum: 1
  std::string name() const { return first == 0 ? std::to_string(count) : count == 2 ? "mirror" : "shift"; }
  bool valid() const { return count >= 1 && first + count <= (first == 0 ? kMostViews : kViewNumbers); }

 private:
  Views(int begin, int views) : first(begin), count(views) {}
};

// A record that does not hold the image it should.
class CorruptRecord : public Error {
 public:
  using Error::Error;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual Shape image() const = 0;  // H x W x C, of what read() gives
  virtual int classes() const = 0;
  virtual int label(int64_t index) const = 0;                // [0, classes)
  virtual std::vector<std::string> class_names() const = 0;  // as many as classes(), or empty where unknown
  // The same as lines of a classes.txt, which tell a class from its description: KEY, or KEY, a tab and words.
  virtual std::vector<std::string> class_lines() const { return class_names(); }
  // Covers all images and labels in their order, as they are kept; two copies of a data set have the same.
  virtual uint64_t checksum() const = 0;
  virtual std::string name(int64_t) const { return {}; }  // the sample's source; empty where unknown

  // H x W x C bytes; safe from many threads. A data set whose images differ in size cuts the part out that the view
  // shows (mirroring and colour are the Augmenter's); others give the whole image, whatever the view. Throws
  // CorruptRecord.
  virtual void read(int64_t index, const View& view, uint8_t* pixels) const = 0;
  virtual bool depends_on_view() const { return false; }
};

// A line of a classes.txt, which is `key` or `key<TAB>words`, for people: words stand behind a blank.
std::string shown_class(std::string line);
std::string class_key(const std::string& line);  // may hold blanks

// Images as the centre view shows them and labels, one after the other, read by the calling rank's team of threads.
// Throws what reading throws.
void read_images(const Dataset& dataset, Slice images, uint8_t* pixels, int32_t* labels);

}  // namespace owt
