#include "layers/loss/teacher_targets.h"

#include <algorithm>
#include <cmath>

#include "src/core/bf16.h"
#include "src/core/dispatch.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kTargetGrain = 1 << 11;  // fewest exponentials per thread for which a thread is worth waking

template <class T>
void write_row(const T* logits, int64_t classes, const TeacherTarget& target, int32_t* out) {
  float largest = float{logits[0]}, sum = 0;
  for (int64_t c = 1; c < classes; ++c) largest = std::max(largest, float{logits[c]});
  for (int64_t c = 0; c < classes; ++c) sum += std::exp((float{logits[c]} - largest) * target.factor);
  for (int64_t c = 0; c < classes; ++c) out[c] = bits_of_target(target.of(float{logits[c]}, largest, sum));
}

}  // namespace

TeacherTarget teacher_target(const LossSettings& settings, double scale) {
  return {settings.type == LossType::kLogistic, static_cast<float>(scale / settings.targets.temperature)};
}

void check_teacher_targets(const Tensor& labels, const Tensor* logits, const LossSettings& settings,
                           const Tensor& out) {
  const int64_t rows = labels.shape().rows();
  OWT_CHECK_EQ(labels.elements(), rows * settings.label_rows().label_numbers(), "labels without targets");
  OWT_CHECK_EQ(out.elements(), rows * settings.label_numbers(), "labels with targets");
  if (logits) OWT_CHECK_EQ(logits->elements(), rows * settings.targets.classes, "a logit of the teacher per class");
}

void write_teacher_targets(Cpu, const Tensor& labels, const Tensor* logits, double scale, const LossSettings& settings,
                           Tensor& out, const Stream&) {
  check_teacher_targets(labels, logits, settings, out);
  const int64_t rows = labels.shape().rows(), classes = settings.targets.classes;
  const int64_t numbers = settings.label_rows().label_numbers();
  const TeacherTarget target = teacher_target(settings, scale);
  const auto write = [&](const auto* x) {
    parallel_for(rows, std::max<int64_t>(1, kTargetGrain / classes), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        int32_t* const to = out.data<int32_t>() + row * (numbers + classes);
        std::copy_n(labels.data<int32_t>() + row * numbers, numbers, to);
        if (x)
          write_row(x + row * classes, classes, target, to + numbers);
        else
          std::fill_n(to + numbers, classes, bits_of_target(0));
      }
    });
  };
  if (!logits) return write(static_cast<const float*>(nullptr));
  with_cpu_element(logits->dtype(), [&](auto element) { write(logits->data<decltype(element)>()); });
}

}  // namespace owt
