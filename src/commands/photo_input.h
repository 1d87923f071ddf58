// Photos of any format as a network sees them: upright, resized to the data set's images, in grey if the network has
// one input channel, then cropped and normalised as in evaluation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/augment.h"
#include "data/photos/photo.h"
#include "data/shards.h"
#include "src/recipe/settings.h"

namespace owt {

class PhotoInput {
 public:
  // Throws Error for images of other than 1 or 3 channels.
  PhotoInput(const DataSettings& data, const DatasetStatistics& statistics);

  // Loads a photo with the short side of the data set's images. Throws Error, including BadPhoto, without the file's
  // name.
  Photo load(const std::string& file) const;
  // Fills in the values of a view (View::number). For shards it is a part of the photo, as CropSettings says; for other
  // data a view of the photo's centre, as large as the images. out: shape().elements() values.
  void make(const Photo& photo, int view, float* out) const;
  Shape shape() const { return augmenter_.out_shape(); }  // H x W x C

 private:
  ImageWindow seen(const Photo& photo, const View& view) const;

  Shape image_;        // shape of the data set's images
  CropSettings crop_;  // crops of photos
  bool places_;        // views show parts of the photo, not of its centre
  Augmenter augmenter_;
};

// Photos from files, limited by memory. errors[i]: why photo i is missing; empty: it is there.
struct LoadedPhotos {
  std::vector<Photo> photos;
  std::vector<std::string> errors;
};
LoadedPhotos load_photos(const PhotoInput& input, std::span<const std::string> files);

}  // namespace owt
