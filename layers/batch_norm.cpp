#include "layers/batch_norm.h"

#include <algorithm>
#include <array>

#include "src/core/dispatch.h"
#include "src/core/row_groups.h"
#include "src/system/check.h"

namespace owt {
namespace {

class BatchNorm : public Layer {
 public:
  explicit BatchNorm(const LayerSpec& spec)
      : Layer(spec.name, "batch_norm"),
        rows_(read_rows(spec.config)),
        eps_(spec.config.number("eps", 1e-5, {.low = 1e-12})) {
    const double momentum = spec.config.number("momentum", 0.1, {.low = 0, .high = 1});
    const int64_t channels = spec.in[spec.in.rank() - 1];
    const Slice part = spec.part.value_or(Slice{0, channels});
    const std::array<const char*, 4> names = {"weight", "bias", "running_mean", "running_var"};
    for (size_t i = 0; i < names.size(); ++i) {
      params_[i].name = spec.name + "." + names[i];
      params_[i].full_shape = params_[i].file_shape = {channels};
      params_[i].part = part;
    }
    params_[kWeight].init.value = params_[kRunningVar].init.value = 1;
    for (const size_t trained : {kWeight, kBias}) {
      Config table = spec.config.table(names[trained]);
      read_multipliers(table, params_[trained]);
      table.finish(std::string("batch_norm's ") + names[trained]);
    }
    for (const size_t average : {kRunningMean, kRunningVar}) {
      params_[average].role = ParamRole::kAverage;
      params_[average].lr_mult = momentum;
      params_[average].decay_mult = 0;
    }
  }

  Shape out_shape(const Shape& in) const override {
    if (in.rank() != 2 && in.rank() != 4)
      fail("batch_norm takes rows x features or rows x height x width x channels, not ", in);
    return in;
  }
  double flops(const Shape& in) const override { return 8.0 * static_cast<double>(in.elements()); }
  std::vector<Param*> params() override { return pointers_to(params_); }
  Columns columns() const override { return Columns::kKeeps; }
  int64_t row_group() const override { return std::max<int64_t>(rows_, 1); }
  std::string why_not_canonical() override {
    return rows_ > 0 || !learns() ? "" : "normalises over rows that depend on the workers; give it e.g. rows = 32";
  }
  std::vector<int64_t> step_sums(Phase phase, bool wants_dx) override {
    if (rows_ != kRowsOfStep || !learns() || (phase == Phase::kBackward && !wants_dx)) return {};
    return {2 * params_[kWeight].part.size()};
  }

  std::unique_ptr<Op> bind(const Shape& in, const Compute& on) override { return bind_with(false, in, on); }

  BoundOp bind_run(std::span<const std::unique_ptr<Layer>> followers, const Shape& in, const Compute& on) override {
    const bool relu = !followers.empty() && followers[0]->type() == "relu";
    return {bind_with(relu, in, on), relu ? 2 : 1};
  }

  Described describe(const Shape&) override {
    return {type(), {{"eps", eps_}, {"momentum", params_[kRunningMean].lr_mult}}, params()};
  }

 private:
  std::unique_ptr<Op> bind_with(bool relu, const Shape& in, const Compute& on) {
    OWT_CHECK_EQ(out_shape(in)[in.rank() - 1], params_[kWeight].part.size(), "layer '", name(), "'");
    const BatchNormParams params{params_[kWeight], params_[kBias], params_[kRunningMean], params_[kRunningVar]};
    const BatchNormSettings settings{eps_, rows_, relu};
    return dispatch(on, [&](auto tag) { return bind_batch_norm(tag, params, settings, in); });
  }

  static int64_t read_rows(Config& config) {
    if (!config.is_string("rows")) return config.integer("rows", kRowsOfOp, {.low = 0, .high = kMostGroupRows});
    if (const std::string word = config.string("rows"); word != "step")
      config.error("rows", concat("'rows' is '", word, "', wanted a number of rows, or \"step\" for all of the step"));
    return kRowsOfStep;
  }

  enum : size_t { kWeight, kBias, kRunningMean, kRunningVar };
  int64_t rows_;  // see BatchNormSettings
  double eps_;
  std::array<Param, 4> params_;
};

}  // namespace

std::unique_ptr<Layer> make_batch_norm(const LayerSpec& spec) { return std::make_unique<BatchNorm>(spec); }

}  // namespace owt
