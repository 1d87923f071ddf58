#include "layers/cosine.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "layers/base/linear_rows.h"
#include "layers/dense.h"
#include "src/core/dispatch.h"
#include "src/core/simd.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kCosineGrain = 1 << 14;  // fewest elements per thread for which a thread is worth waking

// With h[n,o] = dy[n,o] / (|x[n]| |w[o]|), the gradients are the ones of the product x * w' for the gradient h, without
// their components along x and along w: turning a vector changes its cosines, stretching it does not.
template <class OnDevice>
class CosineOp : public Op {
 public:
  CosineOp(OnDevice on, int64_t rows, Param& weight)
      : on_(on),
        weight_(weight),
        product_(bind_dense(on, rows, weight, nullptr)),
        products_({rows, weight.part.size()}),
        type_(activation_type(on.precision)),
        of_x_({rows}, DType::kF32, device()),
        of_weight_({weight.part.size()}, DType::kF32, device()) {}

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    const Stream& stream = *pass.stream;
    product_->forward(pass, x, y);
    invert_norms(on_, x, of_x_, stream);
    // A GPU may replay this launch for other weights.
    if (device() != Device::kCpu || version_ != weight_.version) invert_norms(on_, weight_.value, of_weight_, stream);
    version_ = weight_.version;
    scale_by_norms(on_, y, of_x_, of_weight_, y, stream);
  }

  void backward_data(const Pass& pass, const Tensor& x, const Tensor& y, const Tensor& dy, Tensor* dx) override {
    Tensor h = of_products(pass);
    scale_by_norms(on_, dy, of_x_, of_weight_, h, *pass.stream);
    product_->backward_data(pass, x, y, h, dx);
    if (dx) remove_radial(on_, x, of_x_, *dx, *pass.stream);
  }

  // What earlier passes have added no longer has a radial component.
  void backward_weights(const Pass& pass, const Tensor& x, const Tensor&) override {
    product_->backward_weights(pass, x, of_products(pass));
    remove_radial(on_, weight_.value, of_weight_, weight_.grad, *pass.stream);
  }

  int64_t scratch_bytes(Phase phase) const override {
    return phase == Phase::kForward ? 0 : products_.elements() * size_of(type_);
  }

 private:
  static constexpr Device device() { return std::is_same_v<OnDevice, Cpu> ? Device::kCpu : Device::kCuda; }
  Tensor of_products(const Pass& pass) const {  // h
    return products_.elements() == 0 ? Tensor(products_, type_, device()) : pass.scratch_at(0, products_, type_);
  }

  OnDevice on_;
  Param& weight_;
  std::unique_ptr<Op> product_;
  Shape products_;
  DType type_;
  Tensor of_x_, of_weight_;          // inverse norms
  std::optional<uint64_t> version_;  // the weight's, for of_weight_
};

class Cosine : public LinearRows {
 public:
  explicit Cosine(const LayerSpec& spec)
      : LinearRows(spec, "cosine", {.type = Initializer::Type::kGaussian, .std = 0.01}, /*may_have_bias=*/false) {
    OWT_CHECK(!spec.inputs, "layer '", spec.name, "' needs whole rows");
  }

  int64_t scratch_bytes(const Shape& in, const Compute& on) const override {
    return in.rows() * part_.size() * size_of(activation_type(on.precision));
  }

  std::unique_ptr<Op> bind(const Shape& in, const Compute& on) override {
    out_shape(in);  // checks the shape
    return dispatch(on, [&](auto tag) -> std::unique_ptr<Op> {
      return std::make_unique<CosineOp<decltype(tag)>>(tag, in.rows(), params_[0]);
    });
  }
};

// function(first, lanes) for vectors that hold each of [0, elements) once.
template <class Function>
void over_vectors(int64_t elements, const Function& function) {
  int64_t i = 0;
  for (; i + kLanes <= elements; i += kLanes) function(i, AllLanes{});
  if (i < elements) function(i, elements - i);
}

template <class A, class B>
double dot(const A* a, const B* b, int64_t elements) {
  Vector sums{};
  over_vectors(elements, [&](int64_t i, auto lanes) { sums += load(a + i, lanes) * load(b + i, lanes); });
  double sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += static_cast<double>(sums[lane]);
  return sum;
}

// Calls function(row, begin of the row) for the rows of a matrix, in parallel.
template <class Function>
void over_rows(const Tensor& matrix, const Function& function) {
  const int64_t width = matrix.shape().row_elements();
  parallel_for(matrix.shape().rows(), std::max<int64_t>(1, kCosineGrain / std::max<int64_t>(1, width)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row) function(row, row * width);
               });
}

}  // namespace

std::unique_ptr<Layer> make_cosine(const LayerSpec& spec) { return std::make_unique<Cosine>(spec); }

void invert_norms(Cpu, const Tensor& of, Tensor& inverses, const Stream&) {
  const int64_t width = of.shape().row_elements();
  float* const to = inverses.data();
  with_cpu_element(of.dtype(), [&](auto element) {
    const auto* const from = of.data<decltype(element)>();
    over_rows(of, [&](int64_t row, int64_t first) {
      const double square = dot(from + first, from + first, width);
      to[row] = square < kLeastSquare ? 0 : static_cast<float>(1 / std::sqrt(square));
    });
  });
}

void scale_by_norms(Cpu, const Tensor& from, const Tensor& of_rows, const Tensor& of_columns, Tensor& to,
                    const Stream&) {
  const int64_t width = from.shape().row_elements();
  const float *const rows = of_rows.data(), *const columns = of_columns.data();
  with_cpu_element(from.dtype(), [&](auto element) {
    using T = decltype(element);
    const T* const source = from.data<T>();
    T* const target = to.data<T>();
    over_rows(from, [&](int64_t row, int64_t first) {
      over_vectors(width, [&](int64_t c, auto lanes) {
        store(load(source + first + c, lanes) * (rows[row] * load(columns + c, lanes)), target + first + c, lanes);
      });
    });
  });
}

void remove_radial(Cpu, const Tensor& of, const Tensor& inverses, Tensor& gradient, const Stream&) {
  const int64_t width = of.shape().row_elements();
  const float* const inverse = inverses.data();
  with_cpu_element(of.dtype(), [&](auto element) {
    const auto* const along = of.data<decltype(element)>();
    with_cpu_element(gradient.dtype(), [&](auto of_gradient) {
      auto* const to = gradient.data<decltype(of_gradient)>();
      over_rows(of, [&](int64_t row, int64_t first) {
        const auto each = static_cast<double>(inverse[row]);
        const float length = static_cast<float>(dot(along + first, to + first, width) * each * each);
        over_vectors(width, [&](int64_t i, auto lanes) {
          store(load(to + first + i, lanes) - length * load(along + first + i, lanes), to + first + i, lanes);
        });
      });
    });
  });
}

}  // namespace owt
