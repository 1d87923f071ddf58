#include <algorithm>
#include <optional>
#include <unordered_map>

#include "layers/base/widened.h"
#include "layers/conv_cpu/canonical_product.h"
#include "layers/conv_cpu/dense_products.h"
#include "layers/dense.h"
#include "src/core/bf16.h"
#include "src/core/blas.h"
#include "src/core/canonical.h"
#include "src/core/onednn.h"
#include "src/core/threads.h"

namespace owt {
namespace {

using dnnl::memory;

// A factor of a matrix product; it may be stored transposed.
struct Factor {
  int64_t rows, columns;
  bool transposed = false;

  memory::desc layout(DType type) const {
    using Tag = memory::format_tag;
    return {{rows, columns}, onednn::type_of(type), transposed ? Tag::ba : Tag::ab};
  }
};

// c = a * b + bias, or c += a * b, as one oneDNN matmul with f32 sums.
class Product {
 public:
  struct What {
    DType factors = DType::kF32, result = DType::kF32;
    bool with_bias = false, adds = false;
  };

  Product(const Factor& a, const Factor& b, const What& what)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), a_(a.layout(what.factors)), b_(b.layout(what.factors)) {
    c_ = Factor{a.rows, b.columns}.layout(what.result);
    if (what.with_bias) bias_ = Factor{1, b.columns}.layout(DType::kF32);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (what.adds) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const auto made = what.with_bias ? onednn::describe<dnnl::matmul>(engine_, attributes, a_, b_, bias_, c_)
                                     : onednn::describe<dnnl::matmul>(engine_, attributes, a_, b_, c_);
    matmul_ = dnnl::matmul(made);
    scratchpad_ = memory(made.scratchpad_desc(), engine_);
  }

  void operator()(const void* a, const void* b, const void* bias, void* c) {
    const auto at = [&](const memory::desc& layout, const void* place) {
      return memory(layout, engine_, const_cast<void*>(place));
    };
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, at(a_, a)},
                                              {DNNL_ARG_WEIGHTS, at(b_, b)},
                                              {DNNL_ARG_DST, at(c_, c)},
                                              {DNNL_ARG_SCRATCHPAD, scratchpad_}};
    if (bias) arguments.insert({DNNL_ARG_BIAS, at(bias_, bias)});
    matmul_.execute(stream_, arguments);
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  memory::desc a_, b_, bias_, c_;
  memory scratchpad_;
  dnnl::matmul matmul_;
};

class DenseOp : public Op {
 public:
  DenseOp(DType type, int64_t rows, Param& weight, Param* bias)
      : type_(type),
        rows_(rows),
        out_(weight.part.size()),
        features_(weight.shape().row_elements()),
        weight_(weight),
        bias_(bias) {
    if (out_ > 0 && features_ > 0) prepare();
  }

  void forward(const Pass&, const Tensor& x, Tensor& y) override {
    if (out_ == 0) return;
    if (features_ == 0) return y.zero();
    prepare();
    (*outputs_)(x.raw(), factor().raw(), bias_ ? bias_->value.raw() : nullptr, y.raw());
  }

  void backward_data(const Pass&, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (features_ == 0 || !dx) return;
    if (out_ == 0) return dx->zero();
    if (type_ == DType::kF32)
      return gemm(Transpose::kNo, Transpose::kNo, rows_, features_, out_, dy.data(), out_, weight_.value.data(),
                  features_, 0, dx->data(), features_);
    prepare();
    product(inputs_, {rows_, out_}, {out_, features_}, type_)(dy.raw(), factor().raw(), nullptr, dx->raw());
  }

  void backward_weights(const Pass&, const Tensor& x, const Tensor& dy) override {
    if (features_ == 0 || out_ == 0) return;
    with_cpu_element(type_, [&](auto element) {
      using T = decltype(element);
      if (weight_.keeps_grad)
        add_weight_gradient(x, dy);
      else
        dense_weight_gradient({rows_, features_, out_}, x.data<T>(), dy.data<T>(), weight_.update);
      if (bias_) add_bias_gradient(dy.data<T>(), bias_->take_beta(), bias_->grad.data());
    });
  }

 private:
  using Made = std::optional<Product>;

  const Tensor& factor() const { return type_ == DType::kF32 ? weight_.value : weight_.copy16; }

  // oneDNN divides the work of a primitive when it makes it, so it must run with the same team. For batches of 64 to
  // 128 rows of f32 the forward product is 1.3 to 1.8 times as fast as gemm() with the weight transposed, and the bias
  // is free.
  void prepare() {
    if (team_ == team_size()) return;
    outputs_.emplace(Factor{rows_, features_}, Factor{features_, out_, true},
                     Product::What{type_, type_, bias_ != nullptr});
    inputs_ = weights_ = weights_added_ = {};
    team_ = team_size();
  }

  Product& product(Made& made, const Factor& a, const Factor& b, DType result, bool adds = false) const {
    if (!made) made.emplace(a, b, Product::What{type_, result, false, adds});
    return *made;
  }

  void add_weight_gradient(const Tensor& x, const Tensor& dy) {
    const float beta = weight_.take_beta();
    float* const sums = weight_.grad.data();
    if (type_ == DType::kF32)
      return gemm(Transpose::kYes, Transpose::kNo, out_, features_, rows_, dy.data(), out_, x.data(), features_, beta,
                  sums, features_);
    product(beta == 0 ? weights_ : weights_added_, {out_, rows_, true}, {rows_, features_}, DType::kF32, beta != 0)(
        dy.raw(), x.raw(), nullptr, sums);
  }

  template <class T>
  void add_bias_gradient(const T* dy, float beta, float* sum) const {
    parallel_for(out_, std::max<int64_t>(1, (1 << 15) / rows_), [&](int64_t begin, int64_t end) {
      if (beta == 0) std::fill(sum + begin, sum + end, 0.0f);
      for (int64_t n = 0; n < rows_; ++n)
        for (int64_t o = begin; o < end; ++o) sum[o] += dy[n * out_ + o];
    });
  }

  DType type_;
  int64_t rows_, out_, features_;
  Param& weight_;
  Param* bias_;
  int team_ = 0;
  Made outputs_, inputs_, weights_, weights_added_;  // inputs of the products that were made
};

// Its results do not depend on how rows and outputs are divided among ranks (core/canonical.h). If several ranks sum
// their contributions to dx, dx is f64.
class CanonicalDenseOp : public Op {
 public:
  CanonicalDenseOp(int64_t rows, int64_t block_rows, Param& weight, Param* bias)
      : rows_(rows),
        out_(weight.part.size()),
        features_(weight.shape().row_elements()),
        row_ends_(canonical_row_ends({rows, block_rows})),
        out_ends_(canonical_feature_ends(out_, weight.full_shape.rows())),
        feature_ends_(canonical_feature_ends(features_, features_)),
        weight_(weight),
        bias_(bias) {
    OWT_CHECK(!weight.columns, "canonical sums of a layer that is split by inputs");
  }

  void forward(const Pass&, const Tensor& x, Tensor& y) override {
    if (out_ == 0) return;
    canonical_product({rows_, out_, feature_ends_}, {x.data(), features_, 1}, {weight_.value.data(), features_, 1},
                      kCanonicalUnit, bias_ ? bias_->value.data() : nullptr, y.data());
  }

  void backward_data(const Pass& pass, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    if (out_ == 0) return dx->zero();
    const double unit = canonical_input_unit(pass.step_rows);
    const ProductExtents extents{rows_, features_, out_ends_};
    const TermsOf gradients{dy.data(), out_, 1}, weights{weight_.value.data(), 1, features_};
    if (dx->dtype() == DType::kF64)
      canonical_product(extents, gradients, weights, unit, 0, dx->data<double>());
    else
      canonical_product(extents, gradients, weights, unit, nullptr, dx->data());
  }

  void backward_weights(const Pass&, const Tensor& x, const Tensor& dy) override {
    if (out_ == 0) return;
    canonical_product({out_, features_, row_ends_}, {dy.data(), 1, out_}, {x.data(), 1, features_}, kCanonicalUnit,
                      weight_.take_beta(), weight_.grad.data<double>());
    if (bias_) add_bias_gradient(dy.data(), bias_->take_beta(), bias_->grad.data<double>());
  }

 private:
  void add_bias_gradient(const float* dy, float beta, double* sum) const {
    if (beta == 0) std::fill_n(sum, out_, 0.0);
    for (int64_t n = 0; n < rows_; ++n)
      for (int64_t o = 0; o < out_; ++o) sum[o] += canonical(static_cast<double>(dy[n * out_ + o]));
  }

  int64_t rows_, out_, features_;
  std::vector<int64_t> row_ends_, out_ends_, feature_ends_;  // ends of blocks
  Param& weight_;
  Param* bias_;
};

}  // namespace

std::unique_ptr<Op> bind_dense(Cpu cpu, int64_t rows, Param& weight, Param* bias) {
  if (cpu.canonical_rows > 0) return std::make_unique<CanonicalDenseOp>(rows, cpu.canonical_rows, weight, bias);
  if (must_widen(cpu)) return widened(weight, [&](Param& rounded) { return bind_dense(Cpu{}, rows, rounded, bias); });
  return std::make_unique<DenseOp>(activation_type(cpu.precision), rows, weight, bias);
}

std::unique_ptr<Op> bind_dense_relu(Cpu, int64_t, Param&, Param*, const DropoutSettings*) { return nullptr; }

}  // namespace owt
