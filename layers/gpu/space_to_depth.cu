#include "layers/gpu/space_to_depth.h"

#include <numeric>

#include "src/core/grid.h"
#include "src/core/image_layout.cuh"
#include "src/core/launch.cuh"
#include "src/system/check.h"

namespace owt {
namespace {

// Extents in units of the number of elements that one access can move; all copies begin at a multiple of a unit.
struct Units {
  int in_h, in_row;  // rows of a plain image, and their length
  int top, left;     // zeros around the image, see ImageLayout
  int height, width;

  Units(const ImageLayout& to, int elements)
      : in_h(to.in_h),
        in_row(to.in_w * to.in_c / elements),
        top(to.top),
        left(to.left * to.in_c / elements),
        height(to.height),
        width(to.width) {}
};

template <class Unit, class Blocks>
__global__ void pack_images(Blocks blocks, Units extents, const Unit* x, Unit* packed) {
  wait_for_previous_kernel();
  const int64_t n = blockIdx.x;
  const Unit* image = x + n * extents.in_h * extents.in_row;
  Unit* into = packed + n * extents.height * extents.width * blocks.channels();
  for_each_run(blocks, extents.height, extents.width, [&](int h, int block_row, int w) {
    const int row = h * blocks.rows() + block_row - extents.top, first = w * blocks.run() - extents.left;
    const int limit = static_cast<unsigned>(row) < static_cast<unsigned>(extents.in_h) ? extents.in_row : 0;
    const Unit* from = image + int64_t{row} * extents.in_row;
    Unit* to = into + (int64_t{h} * extents.width + w) * blocks.channels() + block_row * blocks.run();
    blocks.write(to, block_row + 1 == blocks.rows(), [&](int pixel, int colour) {
      const int at = first + pixel * blocks.colours() + colour;
      return static_cast<unsigned>(at) < static_cast<unsigned>(limit) ? from[at] : Unit{};
    });
  });
}

template <class Unit, class Blocks>
void launch_pack(const Blocks& blocks, const ImageLayout& to, const Tensor& x, void* packed, const Stream& stream) {
  const RunGrid threads = run_grid(to, x.shape().rows());
  launch(pack_images<Unit, Blocks>, threads.grid, threads.block, stream, blocks,
         Units(to, static_cast<int>(sizeof(Unit)) / static_cast<int>(size_of(x.dtype()))),
         static_cast<const Unit*>(x.raw()), static_cast<Unit*>(packed));
}

// For blocks of these extents in elements of kBytes; uses the widest units that fit.
template <int kBytes, int kRows, int kRun, int kChannels>
void pack_fixed(const ImageLayout& to, const Tensor& x, void* packed, const Stream& stream) {
  const auto by = [&](auto elements) {
    constexpr int kUnit = std::gcd(elements(), kRun);
    using Unit = typename Word<kUnit * kBytes>::Type;
    launch_pack<Unit>(FixedBlocks<Unit, kRows, kRun / kUnit, 1, kChannels / kUnit>{}, to, x, packed, stream);
  };
  const int together = std::gcd(to.left * to.in_c, to.in_w * to.in_c);
  if (together % 4 == 0)
    by(std::integral_constant<int, 4>{});
  else if (together % 2 == 0)
    by(std::integral_constant<int, 2>{});
  else
    by(std::integral_constant<int, 1>{});
}

// Packs elements of kBytes.
template <int kBytes>
void pack(const ImageLayout& to, const Tensor& x, void* packed, const Stream& stream) {
  using Unit = typename Word<kBytes>::Type;
  const auto are = [&](int rows, int run, int channels) {
    return to.block_h == rows && to.run() == run && to.channels == channels;
  };
  // Three colours come in blocks of 4 x 4 (AlexNet) or 2 x 2 (ResNet), or are padded to 4 or 8 channels.
  if (!hold_packs<16>(static_cast<const std::byte*>(x.raw()), static_cast<const std::byte*>(packed)))
    launch_pack<Unit>(AnyBlocks<Unit>(to), to, x, packed, stream);
  else if (are(4, 12, 48))
    pack_fixed<kBytes, 4, 12, 48>(to, x, packed, stream);
  else if (are(2, 6, 16))
    pack_fixed<kBytes, 2, 6, 16>(to, x, packed, stream);
  else if (are(1, 3, 4))
    pack_fixed<kBytes, 1, 3, 4>(to, x, packed, stream);
  else if (are(1, 3, 8))
    pack_fixed<kBytes, 1, 3, 8>(to, x, packed, stream);
  else
    launch_pack<Unit>(AnyBlocks<Unit>(to), to, x, packed, stream);
}

template <class T>
__global__ void pack_weights(ChannelPacking packing, int64_t count, const T* weights, T* packed) {
  wait_for_previous_kernel();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int64_t source = packing.weight_source(i);
  packed[i] = source < 0 ? from_float<T>(0) : weights[source];
}

}  // namespace

void queue_pack_images(const ImageLayout& layout, const Tensor& x, void* packed, const Stream& stream) {
  if (x.dtype() == DType::kBF16) return pack<2>(layout, x, packed, stream);
  OWT_CHECK(x.dtype() == DType::kF32, "images hold f32 or bf16, not ", name_of(x.dtype()));
  pack<4>(layout, x, packed, stream);
}

void queue_pack_weights(const ChannelPacking& packing, DType dtype, const void* weights, void* packed,
                        const Stream& stream) {
  const ConvGeometry& to = packing.packed();
  const int64_t count = to.out_c * to.kernel_h * to.kernel_w * to.in_c;
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    launch(pack_weights<T>, dim3(blocks_for(count)), dim3(kBlockThreads), stream, packing, count,
           static_cast<const T*>(weights), static_cast<T*>(packed));
  });
}

}  // namespace owt
