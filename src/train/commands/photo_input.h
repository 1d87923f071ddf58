// Photos of any format as a network sees them: upright, brought to the size of the data set's images, cut and
// normalised as those are in evaluation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/augment.h"
#include "data/photos/photo.h"
#include "data/shards.h"
#include "src/train/settings.h"

namespace owt {

class PhotoInput {
 public:
  PhotoInput(const DataSettings& data, const DatasetStatistics& statistics);

  // Its short side is that of the data set's images. Throws Error, BadPhoto among them, naming no file.
  Photo load(const std::string& file) const;
  // What this view (View::number) shows: of shards a part of the photo, as CropSettings says; of others a view of the
  // photo's centre, as large as their images. out: shape().elements() values.
  void make(const Photo& photo, int view, float* out) const;
  Shape shape() const { return augmenter_.out_shape(); }  // H x W x C

 private:
  ImageWindow seen(const Photo& photo, const View& view) const;

  Shape image_;        // of the data set
  CropSettings crop_;  // of the photo
  bool places_;        // views show places of the photo, not of its centre
  Augmenter augmenter_;
};

// Photos from files, as many as there is memory for. errors[i]: why photo i is not there; empty: it is.
struct LoadedPhotos {
  std::vector<Photo> photos;
  std::vector<std::string> errors;
};
LoadedPhotos load_photos(const PhotoInput& input, std::span<const std::string> files);

}  // namespace owt
