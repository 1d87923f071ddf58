#include "data/device_batches.h"

#include <utility>

#include "src/core/tensor.h"
#include "src/system/check.h"

namespace owt {

std::unique_ptr<BatchSource> make_batches(Cuda cuda, LoaderSettings settings, int64_t resident_bytes) {
  OWT_CHECK(settings.dataset && settings.augmenter);
  const int64_t bytes_per_image =
      settings.dataset->image().elements() + (1 + settings.dataset->targets()) * size_of(DType::kI32);
  return !settings.dataset->depends_on_view() && settings.dataset->size() <= resident_bytes / bytes_per_image
             ? make_resident_batches(cuda, std::move(settings))
             : make_streamed_batches(cuda, std::move(settings));
}

}  // namespace owt
