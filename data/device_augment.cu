#include "data/device_augment.h"

#include <algorithm>
#include <limits>

#include "src/core/image_layout.cuh"
#include "src/core/launch.cuh"
#include "src/core/philox.cuh"

namespace owt {
namespace {

constexpr int kMostChannels = 64;
constexpr int kTogether = 8;  // pixels of plain images that a thread makes at once, where that divides their width

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
  int top, left;        // zeros, see ImageLayout
  int height, width;    // what the packed images have
};

// What the threads of a block share: what they know of their image, and of its channels.
struct Drawn {
  Crop crop;
  float mean[kMostChannels], factor[kMostChannels], offset[kMostChannels];
};

__device__ float colour_offset(const AugmentTask& task, int64_t sample, int channel) {
  float offset = 0;
  for (int i = 0; i < task.channels; ++i)
    offset =
        __fadd_rn(offset, __fmul_rn(task.colour[channel * task.channels + i],
                                    task.colour_numbers.normal(static_cast<uint64_t>(sample * task.channels + i))));
  return offset;
}

__device__ void draw(const AugmentTask& task, int64_t sample, Drawn& drawn) {
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  if (thread == 0) {
    const auto bits = task.place_numbers.block(static_cast<uint64_t>(sample));
    drawn.crop = task.training ? random_crop(task.geometry, bits.at[0], bits.at[1], bits.at[2], task.mirror)
                               : crop_of_place(task.geometry, task.place, task.mirrored);
  }
  for (int c = static_cast<int>(thread); c < task.channels; c += static_cast<int>(threads)) {
    drawn.mean[c] = task.mean_of_pixel ? 0 : task.mean[c];
    drawn.factor[c] = task.factor[c];
    drawn.offset[c] = task.colour ? colour_offset(task, sample, c) : 0;
  }
}

// What is known of the channels, in registers where there are as many as the compiler knows.
template <int kColours>
struct OfChannels {
  float mean[kColours], factor[kColours], offset[kColours];
  __device__ explicit OfChannels(const Drawn& drawn) {
    for (int c = 0; c < kColours; ++c)
      mean[c] = drawn.mean[c], factor[c] = drawn.factor[c], offset[c] = drawn.offset[c];
  }
};
template <>
struct OfChannels<0> {
  const float *mean, *factor, *offset;
  __device__ explicit OfChannels(const Drawn& drawn) : mean(drawn.mean), factor(drawn.factor), offset(drawn.offset) {}
};

// The operations of Augmenter in its order, each rounded by itself.
template <bool kMeanOfPixel, bool kColour, class T, class Blocks>
__device__ void make_image(const Blocks& blocks, const AugmentTask& task, const Drawn& drawn, const uint8_t* image,
                           T* into) {
  const Crop crop = drawn.crop;
  const OfChannels<Blocks::kFixedColours> channels(drawn);
  for_each_run(blocks, task.height, task.width, [&](int h, int block_row, int w) {
    const int row = h * blocks.rows() + block_row - task.top, first = w * blocks.pixels() - task.left;
    const bool row_shown = crop.row_begin <= row && row < crop.row_end;
    const int from = (row + crop.row_shift) * task.geometry.in_width + crop.column_shift;
    T* to = into + (int64_t{h} * task.width + w) * blocks.channels() + block_row * blocks.run();
    blocks.write(to, block_row + 1 == blocks.rows(), [&](int pixel, int c) {
      const int column = crop.unmirrored(first + pixel);
      if (!row_shown || column < crop.column_begin || column >= crop.column_end) return 0.0f;
      const int source = (from + column) * blocks.colours() + c;
      const float mean = kMeanOfPixel ? task.mean[source] : channels.mean[c];
      const float value = __fmul_rn(__fsub_rn(static_cast<float>(image[source]), mean), channels.factor[c]);
      return kColour ? __fadd_rn(value, channels.offset[c]) : value;
    });
  });
}

// One image per blockIdx.x.
template <class T, class Blocks>
__global__ void augment(Blocks blocks, const AugmentTask task, T* images) {
  __shared__ Drawn drawn;
  const int64_t row_of_batch = blockIdx.x, sample = task.samples[row_of_batch];
  draw(task, sample, drawn);
  __syncthreads();
  const int64_t in_elements = static_cast<int64_t>(task.geometry.in_height) * task.geometry.in_width * task.channels;
  const uint8_t* image = task.pixels + (task.pixels_of_set ? sample : row_of_batch) * in_elements;
  T* into = images + row_of_batch * task.height * task.width * blocks.channels();
  if (task.mean_of_pixel && task.colour)
    make_image<true, true>(blocks, task, drawn, image, into);
  else if (task.mean_of_pixel)
    make_image<true, false>(blocks, task, drawn, image, into);
  else if (task.colour)
    make_image<false, true>(blocks, task, drawn, image, into);
  else
    make_image<false, false>(blocks, task, drawn, image, into);
}

template <class T, class Blocks>
void launch_augment(const Blocks& blocks, AugmentTask task, const ImageLayout& layout, Tensor& images,
                    const Stream& stream) {
  task.top = layout.top, task.left = layout.left;
  task.height = layout.height, task.width = layout.width;
  const RunGrid threads = run_grid(layout, images.shape().rows());
  launch(augment<T, Blocks>, threads.grid, threads.block, stream, blocks, task, images.data<T>());
}

// In a layout for a first layer, or in plain images with as many pixels together as fit.
template <class T>
void augment_as(const ImageLayout& layout, const AugmentTask& task, Tensor& images, const Stream& stream) {
  const auto as = [&](int rows, int pixels, int channels) {
    return hold_packs<kPack<T>>(images.data<T>()) && layout.in_c == 3 && layout.block_h == rows &&
           layout.block_w == pixels && layout.channels == channels;
  };
  if (as(4, 4, 48))
    launch_augment<T>(FixedBlocks<T, 4, 4, 3, 48>{}, task, layout, images, stream);
  else if (as(2, 2, 16))
    launch_augment<T>(FixedBlocks<T, 2, 2, 3, 16>{}, task, layout, images, stream);
  else if (as(1, 1, 4))
    launch_augment<T>(FixedBlocks<T, 1, 1, 3, 4>{}, task, layout, images, stream);
  else if (as(1, 1, 8))
    launch_augment<T>(FixedBlocks<T, 1, 1, 3, 8>{}, task, layout, images, stream);
  else if (as(1, 8, 24))
    launch_augment<T>(FixedBlocks<T, 1, 8, 3, 24>{}, task, layout, images, stream);
  else
    launch_augment<T>(AnyBlocks<T>(layout), task, layout, images, stream);
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

void DeviceAugmenter::run(const Tensor& pixels, Pixels which, const Tensor& samples, const View& view,
                          const std::optional<ImageLayout>& wanted, Tensor& images, const Stream& stream) const {
  const int64_t rows = samples.shape().rows();
  const ImageLayout layout = wanted.value_or(ImageLayout::plain(out_, out_[1] % kTogether == 0 ? kTogether : 1));
  OWT_CHECK_EQ(Shape({layout.in_h, layout.in_w, layout.in_c}), out_);
  OWT_CHECK_EQ(images.shape(), wanted ? layout.batch_of(rows) : out_.batch_of(rows));
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
                         .colour = view.training && colour_.defined() ? colour_.data() : nullptr,
                         .top = 0,
                         .left = 0,
                         .height = 0,
                         .width = 0};
  with_element(images.dtype(), [&](auto element) { augment_as<decltype(element)>(layout, task, images, stream); });
}

}  // namespace owt
