#include "layers/dense.h"

#include "layers/base/linear_params.h"
#include "src/core/cpu_bf16.h"
#include "src/core/dispatch.h"
#include "src/system/check.h"

namespace owt {
namespace {

class Dense : public Layer {
 public:
  explicit Dense(const LayerSpec& spec) : Layer(spec.name, "dense"), in_(spec.in) {
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
                                        .inputs = inputs_});
    params_[0].cpu_reads_copy16 = cpu_has_bf16();  // else its ops are widened
    if (inputs_) in_ = {inputs_->size()};
  }

  Shape out_shape(const Shape& in) const override {
    if (in.rank() != in_.rank() + 1 || in.row() != in_)
      fail("layer '", name(), "' takes rows of ", in_, ", not an input of ", in);
    return {in.rows(), part_.size()};
  }
  double flops(const Shape& in) const override {
    return 2.0 * static_cast<double>(in.elements()) * static_cast<double>(part_.size());
  }
  std::vector<Param*> params() override { return pointers_to(params_); }
  Columns columns() const override { return Columns::kSplits; }
  bool can_split_inputs() const override { return true; }
  bool can_update_at_once() const override { return true; }

  std::unique_ptr<Op> bind(const Shape& in, const Compute& on) override {
    out_shape(in);  // checks the shape
    return dispatch(on, [&](auto tag) { return bind_dense(tag, in.rows(), params_[0], bias()); });
  }

  BoundOp bind_run(std::span<const std::unique_ptr<Layer>> followers, const Shape& in, const Compute& on) override {
    out_shape(in);
    if (!inputs_ && !followers.empty() && followers[0]->type() == "relu") {
      const DropoutSettings* dropout = followers.size() > 1 ? dropout_settings(*followers[1]) : nullptr;
      auto fused = dispatch(on, [&](auto tag) { return bind_dense_relu(tag, in.rows(), params_[0], bias(), dropout); });
      if (fused) return {std::move(fused), dropout ? 3 : 2};
    }
    return {bind(in, on), 1};
  }

 private:
  Param* bias() { return params_.size() > 1 && params_[1].part.size() > 0 ? &params_[1] : nullptr; }

  Shape in_;  // one row of the layer's input
  Slice part_;
  std::optional<Slice> inputs_;
  std::vector<Param> params_;
};

}  // namespace

std::unique_ptr<Layer> make_dense(const LayerSpec& spec) { return std::make_unique<Dense>(spec); }

}  // namespace owt
