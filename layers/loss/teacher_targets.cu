#include "layers/loss/softmax_rows.cuh"
#include "layers/loss/teacher_targets.h"

namespace owt {
namespace {

// A block per row. logits: null if all targets are 0.
template <class T>
__global__ void write_targets(const int32_t* labels, const T* logits, int numbers, int classes, TeacherTarget target,
                              int32_t* out) {
  wait_for_previous_kernel();
  const int64_t row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  out += row * (numbers + classes);
  for (int i = thread; i < numbers; i += threads) out[i] = labels[row * numbers + i];
  out += numbers;
  if (!logits) {
    for (int c = thread; c < classes; c += threads) out[c] = bits_of_target(0);
    return;
  }
  logits += row * classes;
  float largest = -kInfinity, sum = 0;
  for (int c = thread; c < classes; c += threads) largest = fmaxf(largest, to_float(logits[c]));
  largest = reduce_block(largest, Larger{});
  for (int c = thread; c < classes; c += threads) sum += expf((to_float(logits[c]) - largest) * target.factor);
  sum = reduce_block(sum, Sum{});
  for (int c = thread; c < classes; c += threads) out[c] = bits_of_target(target.of(to_float(logits[c]), largest, sum));
}

}  // namespace

void write_teacher_targets(Cuda, const Tensor& labels, const Tensor* logits, double scale, const LossSettings& settings,
                           Tensor& out, const Stream& stream) {
  check_teacher_targets(labels, logits, settings, out);
  const int64_t rows = labels.shape().rows(), classes = settings.targets.classes;
  if (rows == 0) return;
  with_element(logits ? logits->dtype() : DType::kF32, [&](auto element) {
    using T = decltype(element);
    launch(write_targets<T>, static_cast<unsigned>(rows), threads_for(classes), stream, labels.data<int32_t>(),
           logits ? logits->data<T>() : nullptr, static_cast<int>(settings.label_rows().label_numbers()),
           static_cast<int>(classes), teacher_target(settings, scale), out.data<int32_t>());
  });
}

}  // namespace owt
