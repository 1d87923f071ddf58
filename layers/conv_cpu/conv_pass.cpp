#include "layers/conv_cpu/conv_pass.h"

#include "src/system/check.h"

namespace owt {

const char* name_of(PassKind kind) {
  switch (kind) {
    case PassKind::kForward:
      return "forward";
    case PassKind::kBackwardData:
      return "backward data";
    default:
      return "backward weights";
  }
}

void ConvPass::pack(const float*, void*) const { fail("this pass reads no weights"); }
void ConvPass::forward(const void*, const void*, const float*, void*) const { fail("no forward pass"); }
void ConvPass::backward_data(const void*, const void*, void*) const { fail("no backward data pass"); }
void ConvPass::backward_weights(const void*, const void*, float, float*, float, float*) const {
  fail("no backward weights pass");
}
void ConvPass::canonical_gradients(const float*, const float*, float, double*, float, double*) const {
  fail("no canonical pass");
}

}  // namespace owt
