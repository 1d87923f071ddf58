#include "data/device_augment.h"

#include <algorithm>
#include <limits>

#include "src/core/elements.cuh"
#include "src/core/grid.h"
#include "src/core/launch.cuh"
#include "src/core/philox.cuh"

namespace owt {
namespace {

constexpr int kMostChannels = 64;
constexpr int kPacksPerThread = 2;

struct AugmentTask {
  CropGeometry geometry;
  int channels;
  bool training, mirror, mirrored, pixels_of_set, mean_of_pixel;
  int place;
  DevicePhilox place_numbers, colour_numbers;
  const uint8_t* pixels;
  const int64_t* samples;
  const float* mean;
  const float* factor;
  const float* colour;  // null: nothing
};

// What the threads of a block share: its image.
struct Drawn {
  Crop crop;
  float offset[kMostChannels];
};

__device__ void draw(const AugmentTask& task, int64_t sample, Drawn& drawn) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    const auto bits = task.place_numbers.block(static_cast<uint64_t>(sample));
    drawn.crop = task.training ? random_crop(task.geometry, bits.at[0], bits.at[1], bits.at[2], task.mirror)
                               : crop_of_place(task.geometry, task.place, task.mirrored);
  }
  if (!task.colour || thread >= task.channels) return;
  float offset = 0;
  for (int i = 0; i < task.channels; ++i)
    offset =
        __fadd_rn(offset, __fmul_rn(task.colour[thread * task.channels + i],
                                    task.colour_numbers.normal(static_cast<uint64_t>(sample * task.channels + i))));
  drawn.offset[thread] = offset;
}

// The operations of Augmenter in its order, each rounded by itself.
__device__ float value_at(const AugmentTask& task, const Drawn& drawn, const uint8_t* image, int row, int x, int c) {
  const Crop& crop = drawn.crop;
  const int column = crop.unmirrored(x);
  if (!crop.shows_image(row, column)) return 0;
  const int source = ((row + crop.row_shift) * task.geometry.in_width + column + crop.column_shift) * task.channels + c;
  const float mean = task.mean[task.mean_of_pixel ? source : c];
  const float value = __fmul_rn(__fsub_rn(static_cast<float>(image[source]), mean), task.factor[c]);
  return task.colour ? __fadd_rn(value, drawn.offset[c]) : value;
}

// One image per blockIdx.x, shared by gridDim.y blocks; N elements per thread and step.
template <class T, int N>
__global__ void augment(const AugmentTask task, T* images) {
  __shared__ Drawn drawn;
  const int64_t row_of_batch = blockIdx.x, sample = task.samples[row_of_batch];
  draw(task, sample, drawn);
  __syncthreads();
  const CropGeometry& g = task.geometry;
  const int channels = task.channels, elements = g.out_height * g.out_width * channels;
  const int64_t in_elements = static_cast<int64_t>(g.in_height) * g.in_width * channels;
  const uint8_t* image = task.pixels + (task.pixels_of_set ? sample : row_of_batch) * in_elements;
  T* out = images + row_of_batch * elements;
  const int stride = static_cast<int>(gridDim.y * blockDim.x) * N;
  for (int first = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * N; first < elements; first += stride) {
    int c = first % channels, x = first / channels % g.out_width, row = first / channels / g.out_width;
    Pack<T, N> pack;
    for (int i = 0; i < N; ++i) {
      pack.at[i] = from_float<T>(value_at(task, drawn, image, row, x, c));
      if (++c < channels) continue;
      c = 0;
      if (++x < g.out_width) continue;
      x = 0;
      ++row;
    }
    store_pack(out + first, pack);
  }
}

template <class T, int N>
void launch_augment(const AugmentTask& task, Tensor& images, const Stream& stream) {
  const int64_t packs = images.shape().row_elements() / N;
  const auto parts = std::clamp<int64_t>(packs / (kBlockThreads * kPacksPerThread), 1, 1024);
  launch(augment<T, N>, dim3(static_cast<unsigned>(images.shape().rows()), static_cast<unsigned>(parts)),
         dim3(kBlockThreads), stream, task, images.data<T>());
}

Tensor upload(const std::vector<float>& values, int64_t count) {
  Tensor host({count});
  std::copy_n(values.begin(), count, host.data());
  return host.to(Device::kCuda);
}

}  // namespace

DeviceAugmenter::DeviceAugmenter(const Augmenter& augmenter)
    : geometry_(augmenter.geometry_),
      image_(augmenter.image_),
      out_(augmenter.out_),
      mirror_(augmenter.settings_.mirror),
      mean_of_pixel_(augmenter.settings_.mean == AugmentSettings::From::kPixel) {
  const int64_t channels = image_[2], limit = std::numeric_limits<int>::max() / 2;
  OWT_CHECK(channels <= kMostChannels, "images of ", channels, " channels");
  OWT_CHECK(image_.elements() <= limit && out_.elements() <= limit, "images of ", image_, " cut to ", out_);
  mean_ = upload(augmenter.mean_, mean_of_pixel_ ? image_.elements() : channels);
  factor_ = upload(augmenter.factor_, channels);
  if (!augmenter.colour_.empty()) colour_ = upload(augmenter.colour_, channels * channels);
}

void DeviceAugmenter::run(const Tensor& pixels, Pixels which, const Tensor& samples, const View& view, Tensor& images,
                          const Stream& stream) const {
  OWT_CHECK_EQ(images.shape(), out_.batch_of(samples.shape().rows()));
  OWT_CHECK_EQ(pixels.shape().row(), image_);
  const AugmentTask task{.geometry = geometry_,
                         .channels = static_cast<int>(image_[2]),
                         .training = view.training,
                         .mirror = mirror_,
                         .mirrored = view.mirrored(),
                         .pixels_of_set = which == Pixels::kOfSet,
                         .mean_of_pixel = mean_of_pixel_,
                         .place = view.place(),
                         .place_numbers = DevicePhilox(Augmenter::place_numbers(view.seed, view.epoch)),
                         .colour_numbers = DevicePhilox(Augmenter::colour_numbers(view.seed, view.epoch)),
                         .pixels = pixels.data<uint8_t>(),
                         .samples = samples.data<int64_t>(),
                         .mean = mean_.data(),
                         .factor = factor_.data(),
                         .colour = view.training && colour_.defined() ? colour_.data() : nullptr};
  with_element(images.dtype(), [&](auto element) {
    using T = decltype(element);
    if (images.shape().row_elements() % kPack<T> == 0)
      launch_augment<T, kPack<T>>(task, images, stream);
    else
      launch_augment<T, 1>(task, images, stream);
  });
}

}  // namespace owt
