// Conversions between f32 and bf16, element by element.
//   round_to_bf16: to nearest, ties to even; values above the largest become infinity; infinity and NaN are kept
//   widen_to_f32:  exact
//   round_as_bf16: rounds to bf16 and widens again
// Both tensors have the same number of elements and are on the tag's device; queued on the stream. They share no
// memory.
#pragma once

#include "src/core/stream.h"
#include "src/core/tensor.h"

namespace owt {

void round_to_bf16(Cpu, const Tensor& f32, Tensor& bf16, const Stream& stream);
void round_to_bf16(Cuda, const Tensor& f32, Tensor& bf16, const Stream& stream);
void widen_to_f32(Cpu, const Tensor& bf16, Tensor& f32, const Stream& stream);
void widen_to_f32(Cuda, const Tensor& bf16, Tensor& f32, const Stream& stream);
void round_as_bf16(Cpu, const Tensor& f32, Tensor& rounded_f32, const Stream& stream);
// Rounds f64 to the nearest f32.
void round_to_f32(Cpu, const Tensor& f64, Tensor& f32, const Stream& stream);
// Values in f32 or bf16 from either device, as f32 on the host: the same tensor if it is that already. The host waits.
Tensor f32_on_host(const Tensor& values);

}  // namespace owt
