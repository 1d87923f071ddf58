#include "src/train/made_up_batch.h"

#include "src/core/bf16.h"
#include "src/core/philox.h"

namespace owt {

Batch made_up_batch(const Model& model, const Slice& rows, const PlanRequest& request) {
  Batch batch;
  batch.images = Tensor(model.input.batch_of(rows.size()));
  batch.labels = Tensor({rows.size()}, DType::kI32);
  batch.step_rows = request.step_rows;
  const Philox random(1, RandomStream::kSynthetic);
  const int64_t each = model.input.elements();
  for (int64_t i = 0; i < batch.images.elements(); ++i)
    batch.images.data()[i] = random.uniform(static_cast<uint64_t>(rows.begin * each + i)) - 0.5f;
  for (int64_t i = 0; i < rows.size(); ++i)
    batch.labels.data<int32_t>()[i] = static_cast<int32_t>((rows.begin + i) % model.classes);
  if (request.on.precision == Precision::kBf16) batch.images = to_bf16(batch.images);
  batch.images = batch.images.to(request.on.device);
  batch.labels = batch.labels.to(request.on.device);
  return batch;
}

}  // namespace owt
