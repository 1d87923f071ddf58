// Converts the bytes of images to a network's input values: changes colours and shapes, normalises, pads, crops,
// mirrors, erases.
//
// In training, random colours and one operation of TrivialAugment-Wide (data/pixel_ops.h) may first change the bytes of
// an image. Then
//   value[y,x,c] = (pixel[y,x,c] - mean) * scale / std + colour offset
// with the mean and std of that source position or channel; pixels, means and stds are 0 to 255. An image has one
// colour offset per epoch: color * normal[c], or with `pca` the offset of Krizhevsky et al. 2012:
//   offset[c] = scale / std * sum over i of pca * normal[i] * eigenvalue[i] / 255 * eigenvector[i][c]
// with the eigenvalues and eigenvectors of the covariance of the training images' colours (divided by 255, because the
// paper's pixels are 0 to 1). Then `pad` zeros are added on all four sides, and the result is cropped:
//   training:   at a random place, mirrored left to right with probability 1/2, and with a random colour offset;
//               finally a random rectangle may become zeros (random_patch() or random_square() of data/crop.h);
//   evaluation: at the centre (rounded up and left) or in a corner, mirrored or not, depending on the view.
// With alternating mirrors, half of the images are mirrored in the first epoch. In each later epoch the images are
// mirrored that were not mirrored in the previous one, so that two epochs show both sides of every image.
// Random numbers depend on (seed, epoch, index of the sample in its data set) only, RandomStream::kAugment.
// Sources: Krizhevsky et al. 2012, section 4.1 (crops, mirror images, colours); Jordan 2024, "94% on CIFAR-10 in 3.29
// seconds on a single GPU", section 3.6 (alternating mirrors).
#pragma once

#include <cstdint>
#include <vector>

#include "data/crop.h"
#include "data/dataset.h"
#include "data/mix.h"
#include "data/pixel_ops.h"
#include "src/core/philox.h"
#include "src/system/config.h"

namespace owt {

struct AugmentSettings {
  enum class From {
    kNone,
    kPixel,    // one for each pixel and channel, over the training images; means only
    kChannel,  // one for each channel
    kValues,   // given values: one per channel, or one for all
  };

  int64_t crop = 0;      // side of the square output; 0: the size of the image
  int64_t pad = 0;       // pixels on each side before the crop
  bool reflect = false;  // they reflect the image (CropGeometry::reflects); otherwise they are zeros
  bool mirror = false;
  bool alternate = false;  // mirrors alternate; with mirror
  double color = 0;        // standard deviation of the colour offset, in units of the output; 0 = off
  double pca = 0;          // standard deviation of the factors along the eigenvectors; 0 = off; excludes color
  double scale = 1;
  From mean = From::kNone;
  From std = From::kNone;                           // kNone: 1
  std::vector<double> mean_values{}, std_values{};  // used with kValues
  JitterSettings jitter{};
  bool trivial = false;  // TrivialAugment-Wide
  double erase = 0;      // probability of an erased rectangle
  int64_t cutout = 0;    // side of the erased square of each image; 0 = off; excludes erase
  MixSettings mix{};     // mixing of pairs of images, done by the code that makes batches (data/mix.h)

  // Reads a table like
  //   { crop = 28, pad = 4, mirror = true, color = 0.0, pca = 0.0, scale = 1.0, mean = "pixel", std = "channel",
  //     jitter = { brightness = 0.4, contrast = 0.4, saturation = 0.4, hue = 0.1 }, policy = "trivial_wide",
  //     erase = 0.1, cutout = 8, mixup = 0.2, cutmix = 1.0 }
  // All keys are optional. mean: "pixel", "channel", "none" or [r, g, b], one value per channel; std: "channel", "none"
  // or [r, g, b]; mirror may also be "alternating". On images of one channel saturation and hue change nothing. Throws
  // Error with file and line for unknown keys, and for values that do not fit images of shape `image` (H x W x C).
  static AugmentSettings from(Config table, const Shape& image);

  bool edits() const { return trivial || jitter.any(); }  // changes bytes in training
  bool needs_statistics() const {
    return mean == From::kPixel || mean == From::kChannel || std == From::kChannel || pca > 0;
  }
};

// Statistics of all pixels of a data set, 0 to 255. Sums are exact, so they do not depend on the number of threads.
struct DatasetStatistics {
  std::vector<double> pixel_mean;                 // H x W x C; empty if images differ in size
  std::vector<double> channel_mean, channel_std;  // C; the std is over all images and positions
  std::vector<double> covariance;                 // C x C, of the channels; this and the next two: only for shards
  std::vector<double> eigenvalues, eigenvectors;  // C, the largest first; C x C, one vector of length 1 per row
};

// Reads every image once, with the calling rank's team of threads. Throws Error for an empty data set.
DatasetStatistics compute_statistics(const Dataset& dataset);

class Augmenter {
 public:
  // `statistics`: of the training images, also for the evaluation of other images; may be empty if the settings do not
  // need them.
  Augmenter(const AugmentSettings& settings, const Shape& image, const DatasetStatistics& statistics = {});

  Shape out_shape() const { return out_; }  // H x W x C
  bool edits() const { return settings_.edits(); }
  const MixSettings& mix() const { return settings_.mix; }

  // What the centre view of evaluation does to its pixels: value = (pixel - mean) * factor, each of out_shape(). In
  // padding the factor is 0.
  struct Normalisation {
    std::vector<float> mean, factor;
  };
  Normalisation at_centre() const;

  // pixels: an image of H x W x C bytes; out: out_shape().elements() values. May be called from many threads at once.
  template <class T>  // float or Bf16
  void make(const View& view, int64_t sample, const uint8_t* pixels, T* out) const;

 private:
  friend class DeviceAugmenter;  // computes the same values in a kernel

  // Random numbers by the sample's index: one block for its place and mirroring; one number per channel for its colour.
  static Philox place_numbers(uint64_t seed, int64_t epoch);
  static Philox colour_numbers(uint64_t seed, int64_t epoch);
  // Random numbers for colour jitter, for the policy, and for erasing.
  static Philox jitter_numbers(uint64_t seed, int64_t epoch);
  static Philox policy_numbers(uint64_t seed, int64_t epoch);
  static Philox patch_numbers(uint64_t seed, int64_t epoch);
  static constexpr uint64_t kJitterBlocks = 2, kPatchBlocks = 16;  // per sample; the last of kPatchBlocks decides

  EditDraw edit_draw() const;
  const uint8_t* edited(const View& view, int64_t sample, const uint8_t* pixels) const;
  Patch patch_for(const View& view, int64_t sample) const;
  Crop crop_for(const View& view, int64_t sample) const;
  void set_colour(const DatasetStatistics& statistics);
  std::vector<float> colour_offset(const View& view, int64_t sample) const;  // W x C, or empty
  void reflect_row(const uint8_t* row, int first, std::vector<uint8_t>& to) const;
  template <class T>
  void mirror_rows(T* out) const;

  AugmentSettings settings_;
  Shape image_, out_;
  CropGeometry geometry_{};
  std::vector<float> mean_;      // H x W x C for a mean per pixel, otherwise W x C
  std::vector<float> factor_;    // W x C: scale / std
  std::vector<PixelOp> policy_;  // trivial_augment_wide(), or empty
  // C x C, the weight of each normal number in each channel: [channel][number]; empty: no offset.
  std::vector<float> colour_;
};

}  // namespace owt
