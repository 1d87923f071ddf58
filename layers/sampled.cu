#include "layers/sampled.h"

#include "src/system/check.h"

namespace owt {

void gather_rows(Cuda, const Tensor&, const SampledRows&, Tensor&, const Stream&) { fail("no GPU"); }
void clear_columns(Cuda, const SampledRows&, Tensor&, const Stream&) { fail("no GPU"); }

}  // namespace owt
