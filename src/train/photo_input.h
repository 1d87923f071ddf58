// Photos of any format as a network sees them: upright, brought to the size of the data set's images, cut and normalised
// as those are in evaluation.
#pragma once

#include <cstdint>
#include <string>

#include "data/augment.h"
#include "data/photo.h"
#include "src/train/settings.h"

namespace owt {

class PhotoInput {
 public:
  PhotoInput(const DataSettings& data, const DatasetStatistics& statistics);

  // Its short side is that of the data set's images. Throws Error, BadPhoto among them, naming no file.
  Photo load(const std::string& file) const;
  // The photo's centre, as large as the data set's images, in this view of it (View::number). out: shape().elements().
  void make(const Photo& photo, int view, float* out) const;
  Shape shape() const { return augmenter_.out_shape(); }  // H x W x C

 private:
  Shape image_;  // of the data set
  Augmenter augmenter_;
};

}  // namespace owt
