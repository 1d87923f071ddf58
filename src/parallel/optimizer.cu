#include <algorithm>
#include <bit>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "layers/base/packed_rows.cuh"
#include "layers/loss/softmax_rows.cuh"
#include "src/core/blas.h"
#include "src/core/elements.cuh"
#include "src/core/grid.h"
#include "src/core/launch.cuh"
#include "src/core/matmul.h"
#include "src/core/tile_product.cuh"
#include "src/parallel/update_rules.h"
#include "src/plan/plan_bytes.h"

namespace owt {
namespace {

constexpr unsigned kThreads = 256;
// Elements of one item per block. Updates beside the backward pass have a stream of the lowest priority. Their blocks
// are small, because a convolution must wait for a block that has begun.
constexpr int64_t kChunk = 4096, kChunkBeside = 1024;

static_assert(sizeof(StepRates) == StepRates::kNumbers * sizeof(double), "a GPU has them as so many numbers");

struct Items {
  UpdateItem item[kParamsPerUpdate];
  int first_block[kParamsPerUpdate + 1];  // by item
  int count;
  int64_t chunk;
};

__device__ float4 load_four(const float* from) { return *reinterpret_cast<const float4*>(from); }
__device__ float4 load_four(const __nv_bfloat16* from) {
  const auto pack = load_pack<__nv_bfloat16, 4>(from);
  return {to_float(pack.at[0]), to_float(pack.at[1]), to_float(pack.at[2]), to_float(pack.at[3])};
}

template <class Rule>
__device__ void update_one(const UpdateItem& item, const Rule& rule, int64_t i, float gradient) {
  float first = item.states[0][i], second = Rule::kStates > 1 ? item.states[1][i] : 0.0f;
  const float weight = rule(item.weight[i], gradient, first, second);
  item.states[0][i] = first;
  if (Rule::kStates > 1) item.states[1][i] = second;
  item.weight[i] = weight;
  if (item.copy16) static_cast<__nv_bfloat16*>(item.copy16)[i] = __float2bfloat16(weight);
}

// Four elements per access: `i` and the addresses are multiples of four elements.
template <class Rule>
struct FourElements {
  float4 weight, first, second{};

  __device__ void load(const UpdateItem& item, int64_t i) {
    weight = load_four(item.weight + i);
    first = load_four(item.states[0] + i);
    if (Rule::kStates > 1) second = load_four(item.states[1] + i);
  }
  __device__ void update(const Rule& rule, const float4& gradient) {
    weight.x = rule(weight.x, gradient.x, first.x, second.x);
    weight.y = rule(weight.y, gradient.y, first.y, second.y);
    weight.z = rule(weight.z, gradient.z, first.z, second.z);
    weight.w = rule(weight.w, gradient.w, first.w, second.w);
  }
  // Intrinsics, because nvcc 13.0 writes one word at a time for assignments here.
  __device__ void store(const UpdateItem& item, int64_t i) const {
    __stcs(reinterpret_cast<float4*>(item.weight + i), weight);
    __stcs(reinterpret_cast<float4*>(item.states[0] + i), first);
    if (Rule::kStates > 1) __stcs(reinterpret_cast<float4*>(item.states[1] + i), second);
    if (!item.copy16) return;
    const Pack<__nv_bfloat16, 4> rounded{__float2bfloat16(weight.x), __float2bfloat16(weight.y),
                                         __float2bfloat16(weight.z), __float2bfloat16(weight.w)};
    __stcs(reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(item.copy16) + i), std::bit_cast<uint2>(rounded));
  }
};

template <class Gradient, class Rule>
__device__ void update_one_by_one(const UpdateItem& item, const Rule& rule, int64_t begin, int64_t end) {
  const auto* gradient = static_cast<const Gradient*>(item.gradient);
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    update_one(item, rule, i, gradient ? to_float(gradient[i]) : 0.0f);
}

template <class Gradient, class Rule>
__device__ void update_by_four(const UpdateItem& item, const Rule& rule, int64_t begin, int64_t end) {
  for (int64_t i = begin + 4 * threadIdx.x; i < end; i += 4 * blockDim.x) {
    FourElements<Rule> four;
    float4 gradient{};
    four.load(item, i);
    if (item.gradient) gradient = load_four(static_cast<const Gradient*>(item.gradient) + i);
    four.update(rule, gradient);
    four.store(item, i);
  }
}

__device__ void update_average(const UpdateItem& item, float scale, int64_t begin, int64_t end) {
  const auto rate = static_cast<float>(item.lr_mult);
  const auto* gradient = static_cast<const float*>(item.gradient);
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    item.weight[i] += rate * (scale * gradient[i] - item.weight[i]);
}

__device__ bool aligned(const void* place, unsigned bytes) { return reinterpret_cast<uintptr_t>(place) % bytes == 0; }

// Whether elements whose number is a multiple of four can be accessed by four.
template <class Rule>
__device__ bool holds_fours(const UpdateItem& item) {
  return aligned(item.weight, 16) && aligned(item.states[0], 16) &&
         (Rule::kStates == 1 || aligned(item.states[1], 16)) && aligned(item.copy16, 8);
}

template <class Gradient, class Rule>
__device__ void update_trained(const UpdateItem& item, const Rule& rule, int64_t begin, int64_t end) {
  if ((end - begin) % 4 == 0 && holds_fours<Rule>(item) && aligned(item.gradient, 4 * sizeof(Gradient)))
    update_by_four<Gradient>(item, rule, begin, end);
  else
    update_one_by_one<Gradient>(item, rule, begin, end);
}

// The last of `count` items that begins at or before this block.
__device__ int item_of_block(const int* first_block, int count) {
  int which = 0;
  for (int above = count; above - which > 1;) {
    const int middle = (which + above) / 2;
    if (first_block[middle] <= static_cast<int>(blockIdx.x))
      which = middle;
    else
      above = middle;
  }
  return which;
}

template <class Rule>
__device__ Rule rule_for(const UpdateRule& rule, const UpdateItem& item, const double* rates) {
  return Rule(rule, RuleTerms(rule, item, {rates[0], rates[1], rates[2], rates[3]}));
}

template <class Rule>
__global__ void update_items(Items items, UpdateRule rule, const double* rates) {
  wait_for_previous_kernel();
  const int which = item_of_block(items.first_block, items.count);
  const UpdateItem& item = items.item[which];
  const int64_t begin = (static_cast<int>(blockIdx.x) - items.first_block[which]) * items.chunk;
  const int64_t end = begin + items.chunk < item.count ? begin + items.chunk : item.count;
  if (item.average) return update_average(item, static_cast<float>(rule.gradient_scale), begin, end);
  const Rule one = rule_for<Rule>(rule, item, rates);
  if (item.gradient_type == DType::kBF16)
    update_trained<__nv_bfloat16>(item, one, begin, end);
  else
    update_trained<float>(item, one, begin, end);
}

// Updates the rows of a weight whose packed gradient is in [begin, end), kWidth elements at a time.
template <int kWidth, class Gradient, class Rule>
__device__ void update_packed(const RowsItem& of, const Rule& rule, int64_t begin, int64_t end) {
  const UpdateItem& item = of.item;
  const PackedPlaces places(of.rows, of.row_elements, begin);
  const auto* gradient = static_cast<const Gradient*>(item.gradient) + begin;
  const auto count = static_cast<unsigned>(end - begin);
  for (unsigned i = kWidth * threadIdx.x; i < count; i += kWidth * blockDim.x) {
    const int64_t place = places.of(i);
    if (place == kNoPlace) return;  // neither have later elements
    if constexpr (kWidth == 1) {
      update_one(item, rule, place, to_float(gradient[i]));
    } else {
      FourElements<Rule> four;
      four.load(item, place);
      four.update(rule, load_four(gradient + i));
      four.store(item, place);
    }
  }
}

template <class Gradient, class Rule>
__device__ void update_packed(const RowsItem& of, const Rule& rule, int64_t begin, int64_t end) {
  if (of.row_elements % 4 == 0 && holds_fours<Rule>(of.item) && aligned(of.item.gradient, 4 * sizeof(Gradient)))
    update_packed<4, Gradient>(of, rule, begin, end);
  else
    update_packed<1, Gradient>(of, rule, begin, end);
}

struct RowsItems {
  RowsItem item[kRowsItemsPerUpdate];
  int first_block[kRowsItemsPerUpdate + 1];  // by item
  int count;
  int64_t chunk;
};

template <class Rule>
__global__ void update_rows(RowsItems items, UpdateRule rule, const double* rates) {
  wait_for_previous_kernel();
  const int which = item_of_block(items.first_block, items.count);
  const RowsItem& of = items.item[which];
  const int64_t begin = (static_cast<int>(blockIdx.x) - items.first_block[which]) * items.chunk;
  const int64_t end = begin + items.chunk < of.item.count ? begin + items.chunk : of.item.count;
  const Rule one = rule_for<Rule>(rule, of.item, rates);
  if (of.item.gradient_type == DType::kBF16)
    update_packed<__nv_bfloat16>(of, one, begin, end);
  else
    update_packed<float>(of, one, begin, end);
}

struct Products {
  ProductItem item[kProductsPerUpdate];
  int first_block[kProductsPerUpdate + 1];  // by item
  int count;
};

// Updates the part of a weight in a tile from the tile's gradients.
template <class Rule>
__device__ void update_tile(const ProductItem& of, const Rule& rule, const TileRow* gradients, int top, int left) {
  constexpr int kLanes = 32, kWarps = static_cast<int>(kTileThreads) / kLanes;
  constexpr int kAtOnce = 4 / Rule::kStates;  // rows whose loads are under way together
  const int lane = static_cast<int>(threadIdx.x) % kLanes, warp = static_cast<int>(threadIdx.x) / kLanes;
  const int height = min(kTileHeight, of.out - top), width = min(kTileWidth, of.features - left);
  const int64_t first = int64_t{top} * of.features + left;
  if (of.features % 4 != 0 || !holds_fours<Rule>(of.item)) {
#pragma unroll 1
    for (int row = warp; row < height; row += kWarps)
#pragma unroll 1
      for (int column = lane; column < width; column += kLanes)
        update_one(of.item, rule, first + int64_t{row} * of.features + column, gradients[row][column]);
    return;
  }
  const int column = 4 * lane;
  if (column >= width) return;
#pragma unroll 1
  for (int begin = warp; begin < height; begin += kAtOnce * kWarps) {
    FourElements<Rule> four[kAtOnce];
    const int64_t place = first + int64_t{begin} * of.features + column, next = int64_t{kWarps} * of.features;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (begin + i * kWarps < height) four[i].load(of.item, place + i * next);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (begin + i * kWarps >= height) break;
      four[i].update(rule, load_four(&gradients[begin + i * kWarps][column]));
      four[i].store(of.item, place + i * next);
    }
  }
}

// Three blocks on a multiprocessor: some multiply while others move weights.
template <class Rule>
__global__ void __launch_bounds__(kTileThreads, 3)
    update_by_products(Products all, UpdateRule rule, const double* rates) {
  wait_for_previous_kernel();
  const int which = item_of_block(all.first_block, all.count);
  const ProductItem& of = all.item[which];
  const int tile = static_cast<int>(blockIdx.x) - all.first_block[which];
  const int across = (of.features + kTileWidth - 1) / kTileWidth;
  const int top = tile / across * kTileHeight, left = tile % across * kTileWidth;
  const TileRow* gradients = multiply_tile(
      {static_cast<const __nv_bfloat16*>(of.dy), static_cast<const __nv_bfloat16*>(of.x), of.rows, of.out, of.features},
      top, left);
  update_tile(of, rule_for<Rule>(rule, of.item, rates), gradients, top, left);
}

// Blocks that add up squares, of an update's direction and of the weights.
constexpr unsigned kMatrixBlocks = kMatrixSums / 2;

// Grid: blocks stride over the elements.
template <class Gradient>
__global__ void find_direction(UpdateItem item, UpdateRule rule, const double* rates, float* direction,
                               double* partials) {
  wait_for_previous_kernel();
  const RuleTerms terms(rule, item, {rates[0], rates[1], rates[2], rates[3]});
  const auto scale = static_cast<float>(terms.scale), momentum = static_cast<float>(rule.settings.momentum);
  const auto* gradient = static_cast<const Gradient*>(item.gradient);
  double of_direction = 0, of_weights = 0;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < item.count; i += gridDim.x * blockDim.x) {
    const float g = gradient ? scale * to_float(gradient[i]) : 0.0f;
    const float velocity = momentum * item.states[0][i] + g;
    item.states[0][i] = velocity;
    const float towards = rule.settings.nesterov ? g + momentum * velocity : velocity;
    direction[i] = towards;
    of_direction += double{towards} * towards;
    of_weights += double{item.weight[i]} * item.weight[i];
  }
  of_direction = reduce_block(of_direction, Sum{});
  of_weights = reduce_block(of_weights, Sum{});
  if (threadIdx.x != 0) return;
  partials[blockIdx.x] = of_direction;
  partials[gridDim.x + blockIdx.x] = of_weights;
}

// Called by all threads of a block.
__device__ double sum_of_partials(const double* partials) {
  double sum = 0;
  for (unsigned i = threadIdx.x; i < kMatrixBlocks; i += blockDim.x) sum += partials[i];
  return reduce_block(sum, Sum{});
}

__global__ void normalise_direction(float* direction, int64_t count, const double* partials) {
  wait_for_previous_kernel();
  const double norm = sqrt(sum_of_partials(partials));
  const auto factor = static_cast<float>(1 / (norm > kLeastMatrixNorm ? norm : kLeastMatrixNorm));
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    direction[i] *= factor;
}

// square: of gram; becomes the polynomial.
__global__ void make_polynomial(const float* gram, float* square, int64_t side) {
  wait_for_previous_kernel();
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < side * side; i += gridDim.x * blockDim.x)
    square[i] = kMatrixB * gram[i] + kMatrixC * square[i] + (i % (side + 1) == 0 ? kMatrixA : 0.0f);
}

__global__ void move_weights(UpdateItem item, UpdateRule rule, const double* rates, const float* direction,
                             const double* partials, int64_t rows, double adjustment) {
  wait_for_previous_kernel();
  const RuleTerms terms(rule, item, {rates[0], rates[1], rates[2], rates[3]});
  const double squares = sum_of_partials(partials + kMatrixBlocks);
  double kept = 1 - terms.lr * terms.decay;
  if (rule.settings.unit_weights && squares > 0) kept *= sqrt(static_cast<double>(rows) / squares);
  const auto keep = static_cast<float>(kept), rate = static_cast<float>(terms.lr * adjustment);
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < item.count; i += gridDim.x * blockDim.x) {
    const float weight = keep * item.weight[i] - rate * direction[i];
    item.weight[i] = weight;
    if (item.copy16) static_cast<__nv_bfloat16*>(item.copy16)[i] = __float2bfloat16(weight);
  }
}

// The products of orthogonalise() (core/blas.h).
struct MatrixProducts {
  Matmul gram, square, next;

  MatrixProducts(int64_t rows, int64_t columns)
      : gram(rows <= columns ? form(rows, rows, columns, kNo, kYes, columns, columns)
                             : form(columns, columns, rows, kYes, kNo, columns, columns)),
        square(form(std::min(rows, columns), std::min(rows, columns), std::min(rows, columns), kNo, kNo,
                    std::min(rows, columns), std::min(rows, columns))),
        next(rows <= columns ? form(rows, columns, rows, kNo, kNo, rows, columns)
                             : form(rows, columns, columns, kNo, kNo, columns, columns)) {}

 private:
  static constexpr auto kNo = Transpose::kNo, kYes = Transpose::kYes;
  static MatmulForm form(int64_t m, int64_t n, int64_t k, Transpose a, Transpose b, int64_t lda, int64_t ldb) {
    return {m, n, k, a, b, lda, ldb, n};
  }
};

int64_t chunk_on(const Stream& stream) {
  int lowest = 0, priority = 0;
  OWT_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, nullptr));
  OWT_CUDA(cudaStreamGetPriority(cuda_stream(stream), &priority));
  return priority == lowest ? kChunkBeside : kChunk;
}

int64_t blocks_of(const UpdateItem& item, int64_t chunk) { return (item.count + chunk - 1) / chunk; }
int64_t blocks_of(const ProductItem& item) {
  return int64_t{(item.out + kTileHeight - 1) / kTileHeight} * ((item.features + kTileWidth - 1) / kTileWidth);
}

// Calls queue(launched, blocks) for as many of the items at a time as `Launched` holds.
template <class Launched, class Item, class BlocksOf, class Queue>
void queue_in_turn(const std::vector<Item>& all, const BlocksOf& blocks_of, const Queue& queue) {
  constexpr size_t kMost = std::extent_v<decltype(Launched::item)>;
  for (size_t first = 0; first < all.size(); first += kMost) {
    Launched launched{};
    launched.count = static_cast<int>(std::min(kMost, all.size() - first));
    for (int i = 0; i < launched.count; ++i) {
      launched.item[i] = all[first + static_cast<size_t>(i)];
      launched.first_block[i + 1] = launched.first_block[i] + static_cast<int>(blocks_of(launched.item[i]));
    }
    queue(launched, static_cast<unsigned>(launched.first_block[launched.count]));
  }
}

}  // namespace

void update_items(Cuda, const UpdateRule& rule, const Optimizer::Rates& rates, const UpdateItems& items,
                  const Stream& stream) {
  const double* const numbers = rates.on_device.data<double>();
  const int64_t chunk = chunk_on(stream);
  with_rule(rule.settings, [&](auto tag) {
    using Rule = typename decltype(tag)::Rule;
    queue_in_turn<Products>(
        items.products, [](const ProductItem& item) { return blocks_of(item); },
        [&](Products& some, unsigned blocks) {
          launch(update_by_products<Rule>, blocks, kTileThreads, stream, some, rule, numbers);
        });
    queue_in_turn<Items>(
        items.stored, [&](const UpdateItem& item) { return blocks_of(item, chunk); },
        [&](Items& some, unsigned blocks) {
          some.chunk = chunk;
          launch(update_items<Rule>, blocks, kThreads, stream, some, rule, numbers);
        });
    queue_in_turn<RowsItems>(
        items.of_rows, [&](const RowsItem& of) { return blocks_of(of.item, chunk); },
        [&](RowsItems& some, unsigned blocks) {
          some.chunk = chunk;
          launch(update_rows<Rule>, blocks, kThreads, stream, some, rule, numbers);
        });
  });
}

void update_matrix(Cuda, const UpdateRule& rule, const Optimizer::Rates& rates, const MatrixItem& matrix,
                   MatrixMemory& memory, const Stream& stream) {
  OWT_CHECK(!matrix.gather, "a GPU updates whole matrices");
  const UpdateItem& item = matrix.item;
  const int64_t rows = matrix.rows, columns = matrix.columns, least = std::min(rows, columns);
  std::shared_ptr<const void>& kept = memory.products[{rows, columns}];
  if (!kept) kept = std::make_shared<const MatrixProducts>(rows, columns);
  const auto& products = *static_cast<const MatrixProducts*>(kept.get());
  const double* const numbers = rates.on_device.data<double>();
  double* const partials = memory.partials.data<double>();
  float *x = memory.values.data(), *next = x + aligned_elements(rows * columns);
  float* const gram = next + aligned_elements(rows * columns);
  float* const square = gram + aligned_elements(least * least);
  const auto find = item.gradient_type == DType::kBF16 ? find_direction<__nv_bfloat16> : find_direction<float>;
  launch(find, kMatrixBlocks, kThreads, stream, item, rule, numbers, x, partials);
  launch(normalise_direction, striding_blocks_for(item.count), kThreads, stream, x, item.count, partials);
  for (int step = 0; step < rule.settings.ns_steps; ++step) {
    products.gram(x, x, nullptr, 0, gram, stream);
    products.square(gram, gram, nullptr, 0, square, stream);
    launch(make_polynomial, striding_blocks_for(least * least), kThreads, stream, gram, square, least);
    if (rows <= columns)
      products.next(square, x, nullptr, 0, next, stream);
    else
      products.next(x, square, nullptr, 0, next, stream);
    std::swap(x, next);
  }
  launch(move_weights, striding_blocks_for(item.count), kThreads, stream, item, rule, numbers, x, partials, rows,
         rule.settings.adjustment(rows, columns));
}

}  // namespace owt
