// Augmenter (data/augment.h) on the GPU: one kernel makes a batch out of bytes, behind one that changes bytes where the
// settings ask for it.
//
// f32 outputs are bit for bit those of the CPU, but for the colour offset, which may differ by about 1e-6 of itself;
// bf16 outputs are those, rounded to nearest even.
#pragma once

#include <cstdint>
#include <optional>

#include "data/augment.h"
#include "src/core/image_layout.h"
#include "src/core/tensor.h"

namespace owt {

class DeviceAugmenter {
 public:
  // Which images `pixels` holds.
  enum class Pixels {
    kOfBatch,  // row i is the image of row i of the batch
    kOfSet,    // row k is image k of the data set
  };
  // For batches of at most so many rows. Copies means and factors to the calling host thread's GPU. Images have at most
  // 64 channels.
  DeviceAugmenter(const Augmenter& augmenter, int64_t most_rows);

  // pixels: M x H x W x C, u8; samples: N, i64, the images' places in the data set; images: N x out_shape(), or such
  // images in the layout that is wanted, f32 or bf16. All on the GPU. All calls name the same stream.
  void run(const Tensor& pixels, Pixels which, const Tensor& samples, const View& view,
           const std::optional<ImageLayout>& wanted, Tensor& images, const Stream& stream);

 private:
  void edit(const Tensor& pixels, Pixels which, const Tensor& samples, const View& view, const Stream& stream);

  CropGeometry geometry_;
  Shape image_, out_;
  bool mirror_, alternate_, mean_of_pixel_;
  double erase_;
  int64_t most_rows_;
  std::optional<EditDraw> edit_;  // in training; its policy is in policy_
  Tensor policy_;                 // PixelOps
  Tensor edited_, half_edited_;   // images like `pixels`, most_rows_ of them
  Tensor mean_;                   // H x W x C where it is of each pixel, else C
  Tensor factor_;                 // C
  Tensor colour_;                 // C x C; empty: nothing
};

}  // namespace owt
