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
// sample); in evaluation it is one of the ten views of Krizhevsky et al. 2012, section 4.1.
struct View {
  bool training = false;
  uint64_t seed = 0;  // in training
  int64_t epoch = 0;  // in training
  int number = 0;     // in evaluation: 0 centre, 1 to 4 the corners in reading order, 5 to 9 the same, mirrored

  int place() const { return number % 5; }
  bool mirrored() const { return number >= 5; }
};
constexpr int kMostViews = 10;

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
  // Covers all images and labels in their order, as they are kept; two copies of a data set have the same.
  virtual uint64_t checksum() const = 0;
  virtual std::string name(int64_t) const { return {}; }  // the sample's source; empty where unknown

  // H x W x C bytes; safe from many threads. A data set whose images differ in size cuts the part out that the view
  // shows (mirroring and colour are the Augmenter's); others give the whole image, whatever the view. Throws
  // CorruptRecord.
  virtual void read(int64_t index, const View& view, uint8_t* pixels) const = 0;
  virtual bool depends_on_view() const { return false; }
};

// Images as the centre view shows them and labels, one after the other, read by the calling rank's team of threads.
// Throws what reading throws.
void read_images(const Dataset& dataset, Slice images, uint8_t* pixels, int32_t* labels);

}  // namespace owt
