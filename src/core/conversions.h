// Between f32 and bf16, element by element.
//   round_to_bf16: to nearest, ties to even, above the largest to infinity; infinity and NaN stay what they are
//   widen_to_f32:  exact
//   round_as_bf16: the one and then the other
// Both tensors have as many elements and lie on the device of the tag; queued on the stream. They share no memory.
#pragma once

#include "src/core/stream.h"
#include "src/core/tensor.h"

namespace owt {

void round_to_bf16(Cpu, const Tensor& f32, Tensor& bf16, const Stream& stream);
void round_to_bf16(Cuda, const Tensor& f32, Tensor& bf16, const Stream& stream);
void widen_to_f32(Cpu, const Tensor& bf16, Tensor& f32, const Stream& stream);
void widen_to_f32(Cuda, const Tensor& bf16, Tensor& f32, const Stream& stream);
void round_as_bf16(Cpu, const Tensor& f32, Tensor& rounded_f32, const Stream& stream);
// f32 or bf16 values of either device as f32 on the host: themselves where they are that. The host waits.
Tensor f32_on_host(const Tensor& values);

}  // namespace owt
