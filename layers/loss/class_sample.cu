#include "layers/loss/class_sample.h"

#include "src/system/check.h"

namespace owt {

void draw_classes(Cuda, const Pass&, double, const Slice&, const Tensor&, Tensor&, Tensor&) { fail("no GPU"); }
void find_columns(Cuda, const Tensor&, const Tensor&, int, const Tensor&, const Tensor&, Tensor&, const Stream&) {
  fail("no GPU");
}

}  // namespace owt
