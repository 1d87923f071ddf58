#include <algorithm>
#include <bit>

#include "src/core/elements.cuh"
#include "src/core/launch.cuh"
#include "src/parallel/update_rules.h"

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

template <class Gradient, class Rule>
__device__ void update_one_by_one(const UpdateItem& item, const Rule& rule, int64_t begin, int64_t end) {
  const auto* gradient = static_cast<const Gradient*>(item.gradient);
  auto* copy16 = static_cast<__nv_bfloat16*>(item.copy16);
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    float first = item.states[0][i], second = Rule::kStates > 1 ? item.states[1][i] : 0.0f;
    const float weight = rule(item.weight[i], gradient ? to_float(gradient[i]) : 0.0f, first, second);
    item.states[0][i] = first;
    if (Rule::kStates > 1) item.states[1][i] = second;
    item.weight[i] = weight;
    if (copy16) copy16[i] = __float2bfloat16(weight);
  }
}

// Four elements per access. begin, end and the addresses must be multiples of four elements.
template <class Gradient, class Rule>
__device__ void update_by_four(const UpdateItem& item, const Rule& rule, int64_t begin, int64_t end) {
  for (int64_t i = begin + 4 * threadIdx.x; i < end; i += 4 * blockDim.x) {
    float4 weight = load_four(item.weight + i), first = load_four(item.states[0] + i), second{}, gradient{};
    if (Rule::kStates > 1) second = load_four(item.states[1] + i);
    if (item.gradient) gradient = load_four(static_cast<const Gradient*>(item.gradient) + i);
    weight.x = rule(weight.x, gradient.x, first.x, second.x);
    weight.y = rule(weight.y, gradient.y, first.y, second.y);
    weight.z = rule(weight.z, gradient.z, first.z, second.z);
    weight.w = rule(weight.w, gradient.w, first.w, second.w);
    // Intrinsics, because nvcc 13.0 writes one word at a time for assignments here.
    __stcs(reinterpret_cast<float4*>(item.weight + i), weight);
    __stcs(reinterpret_cast<float4*>(item.states[0] + i), first);
    if (Rule::kStates > 1) __stcs(reinterpret_cast<float4*>(item.states[1] + i), second);
    if (!item.copy16) continue;
    const Pack<__nv_bfloat16, 4> rounded{__float2bfloat16(weight.x), __float2bfloat16(weight.y),
                                         __float2bfloat16(weight.z), __float2bfloat16(weight.w)};
    __stcs(reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(item.copy16) + i), std::bit_cast<uint2>(rounded));
  }
}

__device__ void update_average(const UpdateItem& item, float scale, int64_t begin, int64_t end) {
  const auto rate = static_cast<float>(item.lr_mult);
  const auto* gradient = static_cast<const float*>(item.gradient);
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    item.weight[i] += rate * (scale * gradient[i] - item.weight[i]);
}

__device__ bool aligned(const void* place, unsigned bytes) { return reinterpret_cast<uintptr_t>(place) % bytes == 0; }

template <class Gradient, class Rule>
__device__ void update_trained(const UpdateItem& item, const Rule& rule, int64_t begin, int64_t end) {
  const bool by_four = (end - begin) % 4 == 0 && aligned(item.weight, 16) && aligned(item.states[0], 16) &&
                       (Rule::kStates == 1 || aligned(item.states[1], 16)) &&
                       aligned(item.gradient, 4 * sizeof(Gradient)) && aligned(item.copy16, 8);
  if (by_four)
    update_by_four<Gradient>(item, rule, begin, end);
  else
    update_one_by_one<Gradient>(item, rule, begin, end);
}

template <class Rule>
__global__ void update_items(Items items, UpdateRule rule, const double* rates) {
  const auto block = static_cast<int>(blockIdx.x);
  int which = 0;  // the last item that begins at or before this block
  for (int above = items.count; above - which > 1;) {
    const int middle = (which + above) / 2;
    if (items.first_block[middle] <= block)
      which = middle;
    else
      above = middle;
  }
  const UpdateItem& item = items.item[which];
  const int64_t begin = (block - items.first_block[which]) * items.chunk;
  const int64_t end = begin + items.chunk < item.count ? begin + items.chunk : item.count;
  if (item.average) return update_average(item, static_cast<float>(rule.gradient_scale), begin, end);
  const Rule one(rule, RuleTerms(rule, item, {rates[0], rates[1], rates[2], rates[3]}));
  if (item.bf16_gradient)
    update_trained<__nv_bfloat16>(item, one, begin, end);
  else
    update_trained<float>(item, one, begin, end);
}

int64_t chunk_on(const Stream& stream) {
  int lowest = 0, priority = 0;
  OWT_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, nullptr));
  OWT_CUDA(cudaStreamGetPriority(cuda_stream(stream), &priority));
  return priority == lowest ? kChunkBeside : kChunk;
}

}  // namespace

void update_items(Cuda, const UpdateRule& rule, const Optimizer::Rates& rates, std::span<const UpdateItem> all,
                  const Stream& stream) {
  const int64_t chunk = chunk_on(stream);
  for (size_t first = 0; first < all.size(); first += kParamsPerUpdate) {
    Items items{};
    items.chunk = chunk;
    items.count = static_cast<int>(std::min<size_t>(kParamsPerUpdate, all.size() - first));
    for (int i = 0; i < items.count; ++i) {
      items.item[i] = all[first + static_cast<size_t>(i)];
      items.first_block[i + 1] = items.first_block[i] + static_cast<int>((items.item[i].count + chunk - 1) / chunk);
    }
    with_rule(rule.settings, [&](auto tag) {
      launch(update_items<typename decltype(tag)::Rule>, static_cast<unsigned>(items.first_block[items.count]),
             kThreads, stream, items, rule, rates.on_device.data<double>());
    });
  }
}

}  // namespace owt
