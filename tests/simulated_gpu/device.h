// CUDA C++ as plain C++: force-included (-include) when a .cu file is compiled for the simulated GPU.
//
// It defines the keywords and the built-in variables and functions of device code for the host, and replaces
// src/core/launch.cuh and src/core/mma.cuh.
#pragma once

#include <math.h>
// glibc declares these names for itself, so that functions of these names cannot be defined.
#define __expf(x) expf(x)
#define __exp10f(x) powf(10.0f, x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/simulated_gpu/kernels.h"

// Replaces the macro of src/system/lazy_library.h: the simulator defines the functions.
#define OWT_LAZY(library, function) using ::function;

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __launch_bounds__(...)
#define __grid_constant__
// A block runs on one host thread, and its memory is as undefined at its start as on a GPU.
#define __shared__ static thread_local

constexpr int warpSize = 32;

inline void __syncthreads() { simulated_gpu::block_barrier(); }
inline int __syncthreads_count(int predicate) { return simulated_gpu::block_sum(predicate != 0); }
inline int __syncthreads_or(int predicate) { return __syncthreads_count(predicate) != 0; }
inline int __syncthreads_and(int predicate) { return __syncthreads_count(!predicate) == 0; }
inline void __syncwarp(unsigned mask = ~0u) {
  simulated_gpu::warp_exchange(simulated_gpu::WarpOperation::kSync, mask, 0, 0);
}
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() {}
inline void __threadfence_system() { __threadfence(); }

namespace simulated_gpu {
template <class T>
T shuffle(unsigned mask, T value, int source) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = warp_exchange(WarpOperation::kShuffle, mask, bits, source);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
}  // namespace simulated_gpu

// Lanes outside a segment of `width` return the calling lane's value.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
  const int lane = simulated_gpu::lane_of_thread(), first = lane / width * width;
  return simulated_gpu::shuffle(mask, value, first + (source & (width - 1)));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const int lane = simulated_gpu::lane_of_thread(), first = lane / width * width;
  const int source = lane - static_cast<int>(delta);
  return simulated_gpu::shuffle(mask, value, source < first ? lane : source);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const int lane = simulated_gpu::lane_of_thread(), first = lane / width * width;
  const int source = lane + static_cast<int>(delta);
  return simulated_gpu::shuffle(mask, value, source >= first + width ? lane : source);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize) {
  const int lane = simulated_gpu::lane_of_thread(), first = lane / width * width;
  const int source = lane ^ lane_mask;
  return simulated_gpu::shuffle(mask, value, source >= first + width ? lane : source);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(
      simulated_gpu::warp_exchange(simulated_gpu::WarpOperation::kBallot, mask, predicate != 0, 0));
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == ~0u; }

// Kernels of other streams run at the same time, so these are atomic on the host too. There are none for float, because
// a sum in varying order is not reproducible. On a GPU they order no other accesses to memory.
namespace simulated_gpu {
template <class T>
inline constexpr bool kAtomic =
    std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long>;

template <class T, class Function>
T atomic_update(T* address, Function function) {
  static_assert(kAtomic<T>);
  T old = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(address, &old, function(old), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
}  // namespace simulated_gpu

template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  static_assert(simulated_gpu::kAtomic<T>, "float atomics are not deterministic");
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
template <class T>
T atomicSub(T* address, std::type_identity_t<T> value) {
  return simulated_gpu::atomic_update(address, [=](T old) { return old - value; });
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return simulated_gpu::atomic_update(address, [=](T old) { return old > value ? old : value; });
}
template <class T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return simulated_gpu::atomic_update(address, [=](T old) { return old < value ? old : value; });
}
template <class T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
  return simulated_gpu::atomic_update(address, [=](T old) { return old & value; });
}
template <class T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return simulated_gpu::atomic_update(address, [=](T old) { return old | value; });
}
template <class T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return simulated_gpu::atomic_update(address, [=](T) { return value; });
}
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  return simulated_gpu::atomic_update(address, [=](T old) { return old == compare ? value : old; });
}
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return simulated_gpu::atomic_update(address, [=](unsigned old) { return old >= limit ? 0 : old + 1; });
}

template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
T __ldcg(const T* address) {
  return *address;
}
template <class T>
T __ldcs(const T* address) {
  return *address;
}
template <class T>
void __stcs(T* address, T value) {
  *address = value;
}
template <class T>
void __stcg(T* address, T value) {
  *address = value;
}

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
// Rounded by itself: a compiler may not make one operation of it and a sum.
inline float __fmul_rn(float x, float y) {
  volatile const float product = x * y;
  return product;
}
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return 1.0f / std::sqrt(x); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline int __float2int_rd(float x) { return static_cast<int>(std::floor(x)); }
inline int __float2int_ru(float x) { return static_cast<int>(std::ceil(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline unsigned __float2uint_rn(float x) { return static_cast<unsigned>(std::nearbyint(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}
inline int __mulhi(int x, int y) { return static_cast<int>(static_cast<long long>(x) * y >> 32); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
inline void __trap() { std::abort(); }

#define OWT_SIMULATED_MIN_MAX(T)                             \
  inline constexpr T min(T a, T b) { return b < a ? b : a; } \
  inline constexpr T max(T a, T b) { return a < b ? b : a; }
OWT_SIMULATED_MIN_MAX(int)
OWT_SIMULATED_MIN_MAX(unsigned)
OWT_SIMULATED_MIN_MAX(long)
OWT_SIMULATED_MIN_MAX(unsigned long)
OWT_SIMULATED_MIN_MAX(long long)
OWT_SIMULATED_MIN_MAX(unsigned long long)
#undef OWT_SIMULATED_MIN_MAX
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }

#define OWT_SRC_CORE_LAUNCH_CUH
#include "src/core/cuda.h"

namespace simulated_gpu {
#ifdef __SANITIZE_THREAD__
inline constexpr bool kWatched = true;  // by ThreadSanitizer: the file that is compiled
#else
inline constexpr bool kWatched = false;
#endif
void note_watched_kernel(const void* kernel);  // in race_test
}  // namespace simulated_gpu

#define OWT_SRC_CORE_MMA_CUH
namespace owt {

// The contract of src/core/mma.cuh.
inline void mma_16x8x16(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&c)[4]) {
  simulated_gpu::warp_product({a, b, c});
}

// Each lane reads its row itself, so that ThreadSanitizer sees it.
inline void load_transposed(const __nv_bfloat16* row, uint32_t (&words)[4]) {
  struct alignas(16) Row {
    uint16_t at[8];
  };
  if (reinterpret_cast<uintptr_t>(row) % alignof(Row) != 0) {
    std::fprintf(stderr, "simulated GPU: a row of ldmatrix at an address that is no multiple of 16\n");
    std::abort();
  }
  const Row copy = *reinterpret_cast<const Row*>(row);
  simulated_gpu::warp_transposed_load({copy.at, words});
}

// The contract of src/core/launch.cuh. Files that are watched have a function of their own.
template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(simulated_gpu::dynamic_shared_memory());
}

// Kernels of a stream run one after the other.
inline void wait_for_previous_kernel() {}

template <bool watched = simulated_gpu::kWatched, class... Parameters, class... Arguments>
void launch_sharing(int64_t shared_bytes, void (*kernel)(Parameters...), dim3 grid, dim3 block, const Stream& stream,
                    Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "one argument for each parameter");
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if constexpr (watched) simulated_gpu::note_watched_kernel(reinterpret_cast<const void*>(kernel));
  std::tuple<std::remove_cvref_t<Parameters>...> copies(static_cast<Parameters>(std::forward<Arguments>(arguments))...);
  simulated_gpu::launch_kernel(cuda_stream(stream), grid, block, static_cast<size_t>(shared_bytes),
                               reinterpret_cast<const void*>(kernel),
                               [kernel, copies = std::move(copies)] { std::apply(kernel, copies); });
  OWT_CUDA(cudaGetLastError());
}

template <bool watched = simulated_gpu::kWatched, class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, const Stream& stream, Arguments&&... arguments) {
  launch_sharing<watched>(0, kernel, grid, block, stream, std::forward<Arguments>(arguments)...);
}

}  // namespace owt
