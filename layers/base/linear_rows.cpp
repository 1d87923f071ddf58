#include "layers/base/linear_rows.h"

#include "src/core/cpu_bf16.h"
#include "src/system/check.h"

namespace owt {

LinearRows::LinearRows(const LayerSpec& spec, const std::string& type, const Initializer& init, bool may_have_bias)
    : Layer(spec.name, type), in_(spec.in) {
  const int64_t out = spec.config.integer("out", {.low = 1, .high = kMostOutputs}), features = in_.elements();
  if (in_.rank() != 1 && in_.rank() != 3) fail("it takes images or rows of features");
  part_ = spec.part.value_or(Slice{0, out});
  inputs_ = spec.inputs;
  OWT_CHECK(!inputs_ || (0 <= inputs_->begin && inputs_->begin <= inputs_->end && inputs_->end <= features),
            "inputs of ", features, " features");
  OWT_CHECK(0 <= part_.begin && part_.begin <= part_.end && part_.end <= out, "part of ", out, " outputs");
  params_ = read_linear_params(spec, {.full_shape = in_.batch_of(out),
                                      .file_shape = {out, features},
                                      .fan_in = features,
                                      .fan_out = out,
                                      .part = part_,
                                      .inputs = inputs_,
                                      .init = init,
                                      .may_have_bias = may_have_bias});
  params_[0].cpu_reads_copy16 = cpu_has_bf16();  // else its ops are widened
  if (inputs_) in_ = {inputs_->size()};
}

Shape LinearRows::out_shape(const Shape& in) const {
  if (in.rank() != in_.rank() + 1 || in.row() != in_)
    fail("layer '", name(), "' takes rows of ", in_, ", not an input of ", in);
  return {in.rows(), part_.size()};
}

}  // namespace owt
