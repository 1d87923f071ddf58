// Turns bytes into the values a network sees: change colours and shapes, normalise, pad, crop, mirror, erase.
//
// In training the bytes of an image may go through random colours and through one operation of TrivialAugment-Wide
// (data/pixel_ops.h) first. Then
//   value[y,x,c] = (pixel[y,x,c] - mean) * scale / std + colour offset
// with the mean and std of that source position or channel; pixels, means and stds are 0 to 255. An image has one
// colour offset in an epoch: color * normal[c], or with `pca` what Krizhevsky et al. 2012 add to the pixels:
//   offset[c] = scale / std * sum over i of pca * normal[i] * eigenvalue[i] / 255 * eigenvector[i][c]
// with the eigenvalues and eigenvectors of the covariance of the training images' colours (over 255: theirs are of
// pixels from 0 to 1). Then `pad` zeros on all four sides, then a crop of that:
//   training:   at a random place, mirrored left to right with probability 1/2, and with a random colour offset; at
//               last a random rectangle may become zeros (random_patch() of data/crop.h);
//   evaluation: at the centre (rounded up and left) or in a corner, mirrored or not, as the view says.
// With alternating mirrors half of the images are mirrored in the first epoch, and in each other epoch those that were
// not in the one before, so that two epochs show both sides of every image.
// Random numbers are a function of (seed, epoch, index of the sample in its data set), RandomStream::kAugment.
// Sources: Krizhevsky et al. 2012, section 4.1 (crops, mirror images, colours); Jordan 2024, "94% on CIFAR-10 in 3.29
// seconds on a single GPU", section 3.6 (alternating mirrors).
#pragma once

#include <cstdint>
#include <vector>

#include "data/crop.h"
#include "data/dataset.h"
#include "data/mix.h"
#include "data/pixel_ops.h"
#include "src/core/config.h"
#include "src/core/philox.h"

namespace owt {

struct AugmentSettings {
  enum class From {
    kNone,
    kPixel,    // one for each pixel and channel, over the training images; means only
    kChannel,  // one for each channel
    kValues,   // given: one per channel, or one for all
  };

  int64_t crop = 0;  // side of the square output; 0: the size of the image
  int64_t pad = 0;   // zeros on each side before the crop
  bool mirror = false;
  bool alternate = false;  // mirrors alternate; with mirror
  double color = 0;        // standard deviation of the colour offset, in units of the output; 0 = off
  double pca = 0;          // standard deviation of its factors along the eigenvectors; 0 = off; not both
  double scale = 1;
  From mean = From::kNone;
  From std = From::kNone;                           // kNone: 1
  std::vector<double> mean_values{}, std_values{};  // where kValues
  JitterSettings jitter{};
  bool trivial = false;  // TrivialAugment-Wide
  double erase = 0;      // probability
  MixSettings mix{};     // of pairs of images, which whoever makes batches does (data/mix.h)

  // Reads a table like
  //   { crop = 28, pad = 4, mirror = true, color = 0.0, pca = 0.0, scale = 1.0, mean = "pixel", std = "channel",
  //     jitter = { brightness = 0.4, contrast = 0.4, saturation = 0.4, hue = 0.1 }, policy = "trivial_wide",
  //     erase = 0.1, mixup = 0.2, cutmix = 1.0 }
  // All keys are optional. mean: "pixel", "channel", "none" or [r, g, b]; std: "channel", "none" or [r, g, b]; mirror
  // may be "alternating" too. Throws Error with file and line for unknown keys and for what does not fit images of
  // shape `image` (H x W x C).
  static AugmentSettings from(Config table, const Shape& image);

  bool edits() const { return trivial || jitter.any(); }  // changes bytes in training
  bool needs_statistics() const {
    return mean == From::kPixel || mean == From::kChannel || std == From::kChannel || pca > 0;
  }
};

// What all pixels of a data set, 0 to 255, are like. Sums are exact, so they do not depend on the number of threads.
struct DatasetStatistics {
  std::vector<double> pixel_mean;                 // H x W x C; empty where images differ in size
  std::vector<double> channel_mean, channel_std;  // C; the std is over all images and positions
  std::vector<double> covariance;                 // C x C, of the channels; this and what follows: of shards only
  std::vector<double> eigenvalues, eigenvectors;  // C, the largest first; C x C, a vector per row, of length 1
};

// Reads every image once, with the calling rank's team of threads. Throws Error for an empty data set.
DatasetStatistics compute_statistics(const Dataset& dataset);

class Augmenter {
 public:
  // `statistics`: those of the training images, also for the evaluation of other images; may be empty where the
  // settings do not need them.
  Augmenter(const AugmentSettings& settings, const Shape& image, const DatasetStatistics& statistics = {});

  Shape out_shape() const { return out_; }  // H x W x C
  bool edits() const { return settings_.edits(); }
  const MixSettings& mix() const { return settings_.mix; }

  // What the centre view of evaluation does to the pixels it shows: value = (pixel - mean) * factor, each of
  // out_shape(). In padding the factor is 0.
  struct Normalisation {
    std::vector<float> mean, factor;
  };
  Normalisation at_centre() const;

  // pixels: an image of H x W x C bytes; out: out_shape().elements() values. Safe from many threads.
  template <class T>  // float or Bf16
  void make(const View& view, int64_t sample, const uint8_t* pixels, T* out) const;

 private:
  friend class DeviceAugmenter;  // gives the same values from a kernel

  // Random numbers by the sample's index: the block for its place and mirroring; one per channel for its colour.
  static Philox place_numbers(uint64_t seed, int64_t epoch);
  static Philox colour_numbers(uint64_t seed, int64_t epoch);
  // Three sets: of colours that jitter, of the policy, and of erasing.
  static Philox jitter_numbers(uint64_t seed, int64_t epoch);
  static Philox policy_numbers(uint64_t seed, int64_t epoch);
  static Philox patch_numbers(uint64_t seed, int64_t epoch);
  static constexpr uint64_t kJitterBlocks = 2, kPatchBlocks = 16;  // of a sample; of kPatchBlocks the last decides

  EditDraw edit_draw() const;
  const uint8_t* edited(const View& view, int64_t sample, const uint8_t* pixels) const;
  Patch patch_for(const View& view, int64_t sample) const;
  Crop crop_for(const View& view, int64_t sample) const;
  void set_colour(const DatasetStatistics& statistics);
  std::vector<float> colour_offset(const View& view, int64_t sample) const;  // W x C, or empty
  template <class T>
  void mirror_rows(T* out) const;

  AugmentSettings settings_;
  Shape image_, out_;
  CropGeometry geometry_{};
  std::vector<float> mean_;      // H x W x C where it is of each pixel, else W x C
  std::vector<float> factor_;    // W x C: scale / std
  std::vector<PixelOp> policy_;  // trivial_augment_wide(), or empty
  std::vector<float> colour_;  // C x C, what each normal number adds to the channels: [channel][number]; empty: nothing
};

}  // namespace owt
