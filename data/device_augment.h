// Augmenter (data/augment.h) on the GPU: one kernel makes a batch from bytes. Before it another kernel changes the
// bytes if the settings require it.
//
// f32 outputs have the same bits as on the CPU, except for the colour offset, which may differ by a relative 1e-6. bf16
// outputs are these values rounded to nearest even.
#pragma once

#include <cstdint>
#include <optional>

#include "data/augment.h"
#include "src/core/image_layout.h"
#include "src/core/tensor.h"

namespace owt {

class DeviceAugmenter {
 public:
  // The contents of `pixels`.
  enum class Pixels {
    kOfBatch,  // row i is the image of row i of the batch
    kOfSet,    // row k is image k of the data set
  };
  // For batches of at most `most_rows` rows. Copies means and factors to the calling host thread's GPU. Images have at
  // most 64 channels.
  DeviceAugmenter(const Augmenter& augmenter, int64_t most_rows);

  // pixels: M x H x W x C, u8; samples: N, i64, each a SampleDraw, whose pass takes the place of View::epoch; images: N
  // x out_shape(), or the same in layout `wanted`, f32 or bf16. All are on the GPU. All calls pass the same stream.
  void run(const Tensor& pixels, Pixels which, const Tensor& samples, const View& view,
           const std::optional<ImageLayout>& wanted, Tensor& images, const Stream& stream);

 private:
  void edit(const Tensor& pixels, Pixels which, const Tensor& samples, const View& view, const Stream& stream);

  CropGeometry geometry_;
  Shape image_, out_;
  bool mirror_, alternate_, mean_of_pixel_;
  double erase_;
  int cutout_;
  int64_t most_rows_;
  std::optional<EditDraw> edit_;  // in training; its policy is in policy_
  Tensor policy_;                 // PixelOps
  Tensor edited_, half_edited_;   // most_rows_ images like `pixels`
  Tensor mean_;                   // H x W x C for a mean per pixel, otherwise C
  Tensor factor_;                 // C
  Tensor colour_;                 // C x C; empty: no offset
};

}  // namespace owt
