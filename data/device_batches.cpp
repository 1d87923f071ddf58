#include "data/device_batches.h"

#include <utility>

#include "src/core/dispatch.h"
#include "src/system/check.h"

namespace owt {

std::unique_ptr<BatchSource> make_batches(const Compute& on, LoaderSettings settings, int64_t resident_bytes) {
  return dispatch(on, [&](auto tag) { return make_batches(tag, std::move(settings), resident_bytes); });
}

std::unique_ptr<BatchSource> make_batches(Cpu cpu, LoaderSettings settings, int64_t) {
  OWT_CHECK(settings.augmenter);
  if (settings.decoder == Decoder::kGpu)
    fail("data.decoder is \"gpu\", and this run computes on the CPU; set data.decoder = \"cpu\", or \"auto\"");
  settings.images = activation_type(cpu.precision);
  return std::make_unique<Loader>(std::move(settings));
}

}  // namespace owt
