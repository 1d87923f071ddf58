#include "src/train/whitening.h"

#include <algorithm>

#include "data/patch_whitening.h"

namespace owt {
namespace {

// Sets the rows that this rank has.
void whiten(const Job& job, Param& weight) {
  const Shape& full = weight.full_shape;
  const std::vector<float> filters =
      whitening_filters(*job.train, *job.augmenter, {full[1], full[2], weight.init.images, weight.init.eps});
  const int64_t each = full.row_elements(), half = static_cast<int64_t>(filters.size()) / each;
  const int64_t end = std::min(weight.part.end, 2 * half);
  if (weight.part.begin >= end) return;
  Tensor rows(full.with_rows(end - weight.part.begin));
  float* to = rows.data();
  for (int64_t o = weight.part.begin; o < end; ++o) {
    const float sign = o < half ? 1 : -1, *const filter = filters.data() + o % half * each;
    to = std::transform(filter, filter + each, to, [&](float value) { return sign * value; });
  }
  weight.set_rows(0, rows);
}

}  // namespace

void whiten(const Job& job, RankModel& model) {
  for (Param* param : model.params())
    if (param->init.type == Initializer::Type::kWhitening && param->part.size() > 0) whiten(job, *param);
}

}  // namespace owt
