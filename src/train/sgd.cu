#include <algorithm>
#include <bit>

#include "src/core/elements.cuh"
#include "src/core/launch.cuh"
#include "src/parallel/step_launches.h"
#include "src/train/sgd.h"

namespace owt {
namespace {

constexpr unsigned kThreads = 256;
constexpr int64_t kChunk = 4096;  // elements of one item that a block updates

struct Items {
  SgdItem item[kParamsPerUpdate];
  int64_t first_block[kParamsPerUpdate + 1];  // of each item
  int count;
};

struct Factors {
  float momentum, gradient, decay;
  bool nesterov;
};

__device__ float updated(const Factors& f, float weight, float& velocity, float gradient) {
  const float step = f.gradient * gradient + f.decay * weight;
  velocity = f.momentum * velocity - step;
  return f.nesterov ? weight + (f.momentum * velocity - step) : weight + velocity;
}

__device__ float4 load_four(const float* from) { return *reinterpret_cast<const float4*>(from); }
__device__ float4 load_four(const __nv_bfloat16* from) {
  const auto pack = load_pack<__nv_bfloat16, 4>(from);
  return {to_float(pack.at[0]), to_float(pack.at[1]), to_float(pack.at[2]), to_float(pack.at[3])};
}

template <class Gradient>
__device__ void update_one_by_one(const SgdItem& item, const Factors& f, int64_t begin, int64_t end) {
  const auto* gradient = static_cast<const Gradient*>(item.gradient);
  auto* copy16 = static_cast<__nv_bfloat16*>(item.copy16);
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    float velocity = item.velocity[i];
    const float weight = updated(f, item.weight[i], velocity, gradient ? to_float(gradient[i]) : 0.0f);
    item.velocity[i] = velocity;
    item.weight[i] = weight;
    if (copy16) copy16[i] = __float2bfloat16(weight);
  }
}

// Four elements per access: begin, end and the addresses are multiples of four elements.
template <class Gradient>
__device__ void update_by_four(const SgdItem& item, const Factors& f, int64_t begin, int64_t end) {
  for (int64_t i = begin + 4 * threadIdx.x; i < end; i += 4 * blockDim.x) {
    float4 weight = load_four(item.weight + i), velocity = load_four(item.velocity + i), gradient{};
    if (item.gradient) gradient = load_four(static_cast<const Gradient*>(item.gradient) + i);
    weight.x = updated(f, weight.x, velocity.x, gradient.x);
    weight.y = updated(f, weight.y, velocity.y, gradient.y);
    weight.z = updated(f, weight.z, velocity.z, gradient.z);
    weight.w = updated(f, weight.w, velocity.w, gradient.w);
    // By intrinsic: nvcc 13.0 makes a word at a time of assignments here.
    __stcs(reinterpret_cast<float4*>(item.weight + i), weight);
    __stcs(reinterpret_cast<float4*>(item.velocity + i), velocity);
    if (!item.copy16) continue;
    const Pack<__nv_bfloat16, 4> rounded{__float2bfloat16(weight.x), __float2bfloat16(weight.y),
                                         __float2bfloat16(weight.z), __float2bfloat16(weight.w)};
    __stcs(reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(item.copy16) + i), std::bit_cast<uint2>(rounded));
  }
}

__device__ void update_average(const SgdItem& item, float scale, int64_t begin, int64_t end) {
  const auto rate = static_cast<float>(item.lr_mult);
  const auto* gradient = static_cast<const float*>(item.gradient);
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    item.weight[i] += rate * (scale * gradient[i] - item.weight[i]);
}

__device__ bool aligned(const void* place, unsigned bytes) { return reinterpret_cast<uintptr_t>(place) % bytes == 0; }

template <class Gradient>
__device__ void update_trained(const SgdItem& item, const Factors& f, int64_t begin, int64_t end) {
  const bool by_four = (end - begin) % 4 == 0 && aligned(item.weight, 16) && aligned(item.velocity, 16) &&
                       aligned(item.gradient, 4 * sizeof(Gradient)) && aligned(item.copy16, 8);
  if (by_four)
    update_by_four<Gradient>(item, f, begin, end);
  else
    update_one_by_one<Gradient>(item, f, begin, end);
}

__global__ void update_items(Items items, SgdRule rule, const double* rate) {
  const auto block = static_cast<int64_t>(blockIdx.x);
  int which = 0;  // the last item that begins at or before this block
  for (int above = items.count; above - which > 1;) {
    const int middle = (which + above) / 2;
    if (items.first_block[middle] <= block)
      which = middle;
    else
      above = middle;
  }
  const SgdItem& item = items.item[which];
  const int64_t begin = (block - items.first_block[which]) * kChunk;
  const int64_t end = begin + kChunk < item.count ? begin + kChunk : item.count;
  if (!item.velocity) return update_average(item, static_cast<float>(rule.gradient_scale), begin, end);
  const double lr = *rate * item.lr_mult;
  const Factors factors{static_cast<float>(rule.momentum), static_cast<float>(lr * rule.gradient_scale),
                        static_cast<float>(lr * rule.decay * item.decay_mult), rule.nesterov};
  if (item.bf16_gradient)
    update_trained<__nv_bfloat16>(item, factors, begin, end);
  else
    update_trained<float>(item, factors, begin, end);
}

}  // namespace

void sgd_update(Cuda, const SgdRule& rule, const Sgd::Rate& rate, std::span<const SgdItem> all, const Stream& stream) {
  for (size_t first = 0; first < all.size(); first += kParamsPerUpdate) {
    Items items{};
    items.count = static_cast<int>(std::min<size_t>(kParamsPerUpdate, all.size() - first));
    for (int i = 0; i < items.count; ++i) {
      items.item[i] = all[first + static_cast<size_t>(i)];
      items.first_block[i + 1] = items.first_block[i] + (items.item[i].count + kChunk - 1) / kChunk;
    }
    launch(update_items, static_cast<unsigned>(items.first_block[items.count]), kThreads, stream, items, rule,
           rate.on_device.data<double>());
  }
}

}  // namespace owt
