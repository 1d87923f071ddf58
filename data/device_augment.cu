#include "data/device_augment.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "data/order.h"
#include "src/core/image_layout.cuh"
#include "src/core/launch.cuh"
#include "src/core/philox.cuh"

namespace owt {
namespace {

constexpr int kMostChannels = 64;
constexpr int kTogether = 8;  // pixels of plain images that a thread makes at once, if this divides their width

struct AugmentTask {
  CropGeometry geometry;
  int channels;
  bool training, mirror, alternate, mirrored, pixels_of_set, mean_of_pixel;
  int place;
  uint64_t erase;  // probability in units of 2^-32; 0 in evaluation
  int cutout;      // side of the square; 0: none, and in evaluation
  uint64_t patch_blocks;
  DevicePhilox place_numbers, colour_numbers, patch_numbers;  // numbers of pass 0
  const uint8_t* pixels;
  const SampleDraw* draws;
  const float* mean;
  const float* factor;
  const float* colour;  // null: no offset
  int top, left;        // see ImageLayout
  int height, width;    // extents of the packed images
};

// Values shared by the threads of a block: about their image and its channels. Structs in shared memory are initialised
// by constants, because on the simulated GPU another initialisation would be a race; on a GPU there is none.
struct DrawnAugmentation {
  Crop crop = {};
  Patch patch;
  float mean[kMostChannels] = {}, factor[kMostChannels] = {}, offset[kMostChannels] = {};
};

__device__ float colour_offset(const AugmentTask& task, const SampleDraw& draw, int channel) {
  const DevicePhilox numbers = task.colour_numbers.at_step(draw.pass);
  const uint64_t first = uint64_t{draw.sample} * static_cast<uint64_t>(task.channels);
  float offset = 0;
  for (int i = 0; i < task.channels; ++i)
    offset = __fadd_rn(
        offset, __fmul_rn(task.colour[channel * task.channels + i], numbers.normal(first + static_cast<uint64_t>(i))));
  return offset;
}

__device__ Crop draw_crop(const AugmentTask& task, const SampleDraw& draw) {
  if (!task.training) return crop_of_place(task.geometry, task.place, task.mirrored);
  const auto bits = task.place_numbers.at_step(draw.pass).block(draw.sample);
  uint32_t mirror_bits = bits.at[2];
  if (task.alternate) mirror_bits = task.place_numbers.block(draw.sample).at[2] + draw.pass;
  return random_crop(task.geometry, bits.at[0], bits.at[1], mirror_bits, task.mirror);
}

__device__ Patch draw_patch(const AugmentTask& task, const SampleDraw& draw) {
  const DevicePhilox numbers = task.patch_numbers.at_step(draw.pass);
  const uint64_t first = draw.sample * task.patch_blocks;
  if (task.cutout > 0) {
    const auto bits = numbers.block(first);
    return random_square(task.geometry.out_height, task.geometry.out_width, task.cutout, bits.at[2], bits.at[3]);
  }
  Patch patch;
  if (task.erase == 0 || numbers.block(first + task.patch_blocks - 1).at[0] >= task.erase) return patch;
  for (int t = 0; t < kPatchTries && patch.height == 0; ++t) {
    const auto bits = numbers.block(first + static_cast<uint64_t>(t));
    patch =
        random_patch(task.geometry.out_height, task.geometry.out_width, bits.at[0], bits.at[1], bits.at[2], bits.at[3]);
  }
  return patch;
}

__device__ void draw_augmentation(const AugmentTask& task, const SampleDraw& draw, DrawnAugmentation& drawn) {
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  if (thread == 0) {
    drawn.crop = draw_crop(task, draw);
    drawn.patch = draw_patch(task, draw);
  }
  for (int c = static_cast<int>(thread); c < task.channels; c += static_cast<int>(threads)) {
    drawn.mean[c] = task.mean_of_pixel ? 0 : task.mean[c];
    drawn.factor[c] = task.factor[c];
    drawn.offset[c] = task.colour ? colour_offset(task, draw, c) : 0;
  }
}

// Values of the channels, in registers if their number is known at compile time.
template <int kColours>
struct OfChannels {
  float mean[kColours], factor[kColours], offset[kColours];
  __device__ explicit OfChannels(const DrawnAugmentation& drawn) {
    for (int c = 0; c < kColours; ++c)
      mean[c] = drawn.mean[c], factor[c] = drawn.factor[c], offset[c] = drawn.offset[c];
  }
};
template <>
struct OfChannels<0> {
  const float *mean, *factor, *offset;
  __device__ explicit OfChannels(const DrawnAugmentation& drawn)
      : mean(drawn.mean), factor(drawn.factor), offset(drawn.offset) {}
};

// The operations of Augmenter in the same order, each rounded separately.
template <bool kMeanOfPixel, bool kColour, class T, class Blocks>
__device__ void make_image(const Blocks& blocks, const AugmentTask& task, const DrawnAugmentation& drawn,
                           const uint8_t* image, T* into) {
  const Crop crop = drawn.crop;
  const Patch patch = drawn.patch;
  const OfChannels<Blocks::kFixedColours> channels(drawn);
  for_each_run(blocks, task.height, task.width, [&](int h, int block_row, int w) {
    const int row = h * blocks.rows() + block_row - task.top, first = w * blocks.pixels() - task.left;
    const bool row_shown = crop.row_begin <= row && row < crop.row_end;
    const int from = reflected(row + crop.row_shift, task.geometry.in_height) * task.geometry.in_width;
    T* to = into + (int64_t{h} * task.width + w) * blocks.channels() + block_row * blocks.run();
    blocks.write(to, block_row + 1 == blocks.rows(), [&](int pixel, int c) {
      const int column = crop.unmirrored(first + pixel);
      if (!row_shown || column < crop.column_begin || column >= crop.column_end) return 0.0f;
      if (patch.holds(row, first + pixel)) return 0.0f;
      const int source = (from + reflected(column + crop.column_shift, task.geometry.in_width)) * blocks.colours() + c;
      const float mean = kMeanOfPixel ? task.mean[source] : channels.mean[c];
      const float value = __fmul_rn(__fsub_rn(static_cast<float>(image[source]), mean), channels.factor[c]);
      return kColour ? __fadd_rn(value, channels.offset[c]) : value;
    });
  });
}

// Makes one image per blockIdx.x.
template <class T, class Blocks>
__global__ void augment(Blocks blocks, const AugmentTask task, T* images) {
  wait_for_previous_kernel();
  __shared__ DrawnAugmentation drawn;
  const int64_t row_of_batch = blockIdx.x;
  const SampleDraw draw = task.draws[row_of_batch];
  draw_augmentation(task, draw, drawn);
  __syncthreads();
  const int64_t in_elements = static_cast<int64_t>(task.geometry.in_height) * task.geometry.in_width * task.channels;
  const uint8_t* image = task.pixels + (task.pixels_of_set ? draw.sample : row_of_batch) * in_elements;
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

// Makes images in a layout for a first layer, or plain images with as many pixels at once as fit.
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

struct EditTask {
  PixelGrid grid;
  bool pixels_of_set;
  EditDraw draw;
  DevicePhilox jitter_numbers, policy_numbers;  // numbers of pass 0
  const uint8_t* pixels;
  const SampleDraw* draws;
  uint8_t *edited, *half_edited;
};

constexpr unsigned kEditThreads = 512;
constexpr int kTableChannels = 3;

// Values shared by the threads of a block about the operations of their image.
struct EditShared {
  PixelOp ops[EditDraw::kMostOps];
  int count = 0;
  int32_t histograms[kTableChannels][kByteValues] = {};
  uint8_t tables[kTableChannels][kByteValues] = {};
};

__device__ void draw_ops(const EditTask& task, const SampleDraw& draw, EditShared& shared) {
  const DevicePhilox jitter = task.jitter_numbers.at_step(draw.pass);
  const uint64_t sample = draw.sample;
  const auto amounts = jitter.block(sample * 2), order = jitter.block(sample * 2 + 1);
  const uint32_t bits[] = {amounts.at[0], amounts.at[1], amounts.at[2], amounts.at[3], order.at[0]};
  shared.count = task.draw.draw(bits, task.policy_numbers.at_step(draw.pass).block(sample).at, shared.ops);
}

// Run by one thread per channel.
__device__ void make_table(const PixelOp& op, const PixelGrid& grid, int channel, EditShared& shared) {
  ChannelFacts facts;
  facts.histogram = shared.histograms[channel];
  facts.pixels = int64_t{grid.height} * grid.width;
  int64_t sums[kTableChannels] = {};
  for (int c = 0; c < grid.channels; ++c)
    for (int value = 0; value < kByteValues; ++value) sums[c] += int64_t{value} * shared.histograms[c][value];
  facts.grey = mean_grey(sums, grid.channels, facts.pixels);
  facts.highest = kByteValues - 1;
  while (facts.histogram[facts.lowest] == 0) ++facts.lowest;
  while (facts.histogram[facts.highest] == 0) --facts.highest;
  fill_table(op, facts, shared.tables[channel]);
}

__device__ void look_up(const PixelOp& op, const PixelGrid& grid, const uint8_t* from, uint8_t* to,
                        EditShared& shared) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int bytes = grid.height * grid.width * grid.channels;
  for (int i = thread; i < kTableChannels * kByteValues; i += threads)
    shared.histograms[i / kByteValues][i % kByteValues] = 0;
  __syncthreads();
  for (int i = thread; i < bytes; i += threads) atomicAdd(&shared.histograms[i % grid.channels][from[i]], 1);
  __syncthreads();
  if (thread < grid.channels) make_table(op, grid, thread, shared);
  __syncthreads();
  for (int i = thread; i < bytes; i += threads) to[i] = shared.tables[i % grid.channels][from[i]];
}

__device__ void run_op_of_block(const PixelOp& op, const PixelGrid& grid, const uint8_t* from, uint8_t* to,
                                EditShared& shared) {
  if (op.is_by_bytes()) return look_up(op, grid, from, to, shared);
  const int pixels = grid.height * grid.width;
  for (int i = static_cast<int>(threadIdx.x); i < pixels; i += static_cast<int>(blockDim.x))
    write_pixel(op, grid, from, i / grid.width, i % grid.width, to + int64_t{i} * grid.channels);
}

// Edits one image per block. Each operation reads what the previous one wrote; the last one writes `edited`.
__global__ void edit_images(const EditTask task) {
  wait_for_previous_kernel();
  __shared__ EditShared shared;
  const int64_t row = blockIdx.x;
  const SampleDraw draw = task.draws[row];
  const int64_t bytes = int64_t{task.grid.height} * task.grid.width * task.grid.channels;
  if (threadIdx.x == 0) draw_ops(task, draw, shared);
  __syncthreads();
  const uint8_t* from = task.pixels + (task.pixels_of_set ? draw.sample : row) * bytes;
  if (shared.count == 0) run_op_of_block(PixelOp{}, task.grid, from, task.edited + row * bytes, shared);
  for (int i = 0; i < shared.count; ++i) {
    uint8_t* to = ((shared.count - i) % 2 == 1 ? task.edited : task.half_edited) + row * bytes;
    run_op_of_block(shared.ops[i], task.grid, from, to, shared);
    __syncthreads();
    from = to;
  }
}

const SampleDraw* draws_of(const Tensor& samples) {
  return reinterpret_cast<const SampleDraw*>(samples.data<int64_t>());
}

Tensor upload(const std::vector<float>& values, int64_t count) {
  Tensor host({count});
  std::copy_n(values.begin(), count, host.data());
  return host.to(Device::kCuda);
}

Tensor upload(const std::vector<PixelOp>& ops) {
  Tensor host({static_cast<int64_t>(ops.size() * sizeof(PixelOp))}, DType::kU8);
  std::memcpy(host.raw(), ops.data(), ops.size() * sizeof(PixelOp));
  return host.to(Device::kCuda);
}

}  // namespace

DeviceAugmenter::DeviceAugmenter(const Augmenter& augmenter, int64_t most_rows)
    : geometry_(augmenter.geometry_),
      image_(augmenter.image_),
      out_(augmenter.out_),
      mirror_(augmenter.settings_.mirror),
      alternate_(augmenter.settings_.alternate),
      mean_of_pixel_(augmenter.settings_.mean == AugmentSettings::From::kPixel),
      erase_(augmenter.settings_.erase),
      cutout_(static_cast<int>(augmenter.settings_.cutout)),
      most_rows_(most_rows) {
  const int64_t channels = image_[2], limit = std::numeric_limits<int>::max() / 2;
  OWT_CHECK(channels <= kMostChannels, "images of ", channels, " channels");
  OWT_CHECK(image_.elements() <= limit && out_.elements() <= limit, "images of ", image_, " cut to ", out_);
  mean_ = upload(augmenter.mean_, mean_of_pixel_ ? image_.elements() : channels);
  factor_ = upload(augmenter.factor_, channels);
  if (!augmenter.colour_.empty()) colour_ = upload(augmenter.colour_, channels * channels);
  if (!augmenter.edits()) return;
  edit_ = augmenter.edit_draw();
  if (!augmenter.policy_.empty()) policy_ = upload(augmenter.policy_);
  edit_->policy = policy_.defined() ? static_cast<const PixelOp*>(policy_.raw()) : nullptr;
}

// Writes to edited_, allocated at the first use. The first training batch is made before any step runs, and evaluation
// needs no such memory.
void DeviceAugmenter::edit(const Tensor& pixels, Pixels which, const Tensor& samples, const View& view,
                           const Stream& stream) {
  const int64_t rows = samples.shape().rows();
  for (Tensor* memory : {&edited_, &half_edited_})
    if (!memory->defined()) *memory = Tensor(image_.batch_of(most_rows_), DType::kU8, Device::kCuda);
  const EditTask task{.grid = {geometry_.in_height, geometry_.in_width, static_cast<int>(image_[2])},
                      .pixels_of_set = which == Pixels::kOfSet,
                      .draw = *edit_,
                      .jitter_numbers = DevicePhilox(Augmenter::jitter_numbers(view.seed, 0)),
                      .policy_numbers = DevicePhilox(Augmenter::policy_numbers(view.seed, 0)),
                      .pixels = pixels.data<uint8_t>(),
                      .draws = draws_of(samples),
                      .edited = edited_.data<uint8_t>(),
                      .half_edited = half_edited_.data<uint8_t>()};
  launch(edit_images, dim3(static_cast<unsigned>(rows)), dim3(kEditThreads), stream, task);
}

void DeviceAugmenter::run(const Tensor& pixels, Pixels which, const Tensor& samples, const View& view,
                          const std::optional<ImageLayout>& wanted, Tensor& images, const Stream& stream) {
  const int64_t rows = samples.shape().rows();
  const ImageLayout layout = wanted.value_or(ImageLayout::plain(out_, out_[1] % kTogether == 0 ? kTogether : 1));
  OWT_CHECK_EQ(Shape({layout.in_h, layout.in_w, layout.in_c}), out_);
  OWT_CHECK_EQ(images.shape(), wanted ? layout.batch_of(rows) : out_.batch_of(rows));
  OWT_CHECK_EQ(pixels.shape().row(), image_);
  const bool edits = view.training && edit_ && rows > 0;
  if (edits) edit(pixels, which, samples, view, stream);
  const AugmentTask task{.geometry = geometry_,
                         .channels = static_cast<int>(image_[2]),
                         .training = view.training,
                         .mirror = mirror_,
                         .alternate = alternate_,
                         .mirrored = view.mirrored(),
                         .pixels_of_set = which == Pixels::kOfSet && !edits,
                         .mean_of_pixel = mean_of_pixel_,
                         .place = view.place(),
                         .erase = view.training ? static_cast<uint64_t>(std::ceil(std::ldexp(erase_, 32))) : 0,
                         .cutout = view.training ? cutout_ : 0,
                         .patch_blocks = Augmenter::kPatchBlocks,
                         .place_numbers = DevicePhilox(Augmenter::place_numbers(view.seed, 0)),
                         .colour_numbers = DevicePhilox(Augmenter::colour_numbers(view.seed, 0)),
                         .patch_numbers = DevicePhilox(Augmenter::patch_numbers(view.seed, 0)),
                         .pixels = (edits ? edited_ : pixels).data<uint8_t>(),
                         .draws = draws_of(samples),
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
