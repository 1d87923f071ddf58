// Elements of tensors in kernels: conversion, packs that take one memory access, choice by element type.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <bit>
#include <cstdint>

#include "src/core/tensor.h"
#include "src/system/check.h"

namespace owt {

template <>
struct DTypeOf<__nv_bfloat16> {
  static constexpr DType value = DType::kBF16;
};

__host__ __device__ inline float to_float(float value) { return value; }
__host__ __device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class T>
__host__ __device__ inline T from_float(float value);
template <>
__host__ __device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__host__ __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16(value);  // to nearest even
}

// N elements side by side, loaded and stored together. The address must be a multiple of sizeof(Pack).
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

template <class T, int N>
__host__ __device__ inline Pack<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}

// An unsigned integer of kBytes bytes.
template <int kBytes>
struct Word;
template <>
struct Word<1> {
  using Type = uint8_t;
};
template <>
struct Word<2> {
  using Type = uint16_t;
};
template <>
struct Word<4> {
  using Type = uint32_t;
};
template <>
struct Word<8> {
  using Type = uint64_t;
};
template <>
struct Word<16> {
  __extension__ using Type = unsigned __int128;
};

// Stores the pack as one integer if there is one of that size. Otherwise nvcc 13.0 stores each element separately if
// packs that were filled element by element are stored side by side.
template <class T, int N>
__device__ inline void store_pack(T* to, const Pack<T, N>& pack) {
  if constexpr (sizeof pack <= 16) {
    using Whole = typename Word<sizeof pack>::Type;
    *reinterpret_cast<Whole*>(to) = std::bit_cast<Whole>(pack);
  } else {
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
  }
}

// Whether packs of N elements can be loaded from, and stored to, all these addresses.
template <int N, class... T>
inline bool hold_packs(const T*... addresses) {
  return ((reinterpret_cast<uintptr_t>(addresses) % (sizeof(T) * N) == 0) && ...);
}

// Elements of T in the widest memory access, 16 bytes.
template <class T>
constexpr int kPack = 16 / static_cast<int>(sizeof(T));

// Calls function(T{}) with the element type T of activations.
template <class Function>
void with_element(DType dtype, const Function& function) {
  if (dtype == DType::kF32) return function(float{});
  OWT_CHECK(dtype == DType::kBF16, "activations hold f32 or bf16, not ", name_of(dtype));
  function(__nv_bfloat16{});
}

}  // namespace owt
