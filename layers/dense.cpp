#include "layers/dense.h"

#include "layers/base/linear_rows.h"
#include "src/core/dispatch.h"
#include "src/system/check.h"

namespace owt {
namespace {

class Dense : public LinearRows {
 public:
  explicit Dense(const LayerSpec& spec)
      : LinearRows(spec, "dense", {.type = Initializer::Type::kXavier}, /*may_have_bias=*/true) {}

  bool can_split_inputs() const override { return true; }
  bool can_update_at_once() const override { return true; }
  std::string why_not_canonical() override { return ""; }

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
};

}  // namespace

std::unique_ptr<Layer> make_dense(const LayerSpec& spec) { return std::make_unique<Dense>(spec); }

}  // namespace owt
