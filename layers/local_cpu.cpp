#include <algorithm>
#include <vector>

#include "layers/local.h"
#include "src/core/bf16.h"
#include "src/core/blas.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

// Every pass is a matrix product in f32 at each position. The threads split the positions. In backward data they split
// the images, because positions write to the same pixels.
class LocalOp : public Op {
 public:
  LocalOp(const ConvGeometry& geometry, Param& weight, Param* bias)
      : g_(geometry),
        positions_(g_.out_h * g_.out_w),
        patch_(g_.kernel_h * g_.kernel_w * g_.in_c),
        weight_(weight),
        bias_(bias) {}

  void forward(const Pass&, const Tensor& x, Tensor& y) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      forward(x.shape().rows(), x.data<T>(), y.data<T>());
    });
  }
  void backward_data(const Pass&, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    with_cpu_element(dy.dtype(), [&](auto element) {
      using T = decltype(element);
      parallel_for(dy.shape().rows(), 1, [&](int64_t begin, int64_t end) {
        give_back({begin, end}, dy.data<T>(), dx->data<T>());
      });
    });
  }
  void backward_weights(const Pass&, const Tensor& x, const Tensor& dy) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      sum_gradients(x.shape().rows(), x.data<T>(), dy.data<T>());
    });
  }

 private:
  int64_t all_weights() const { return positions_ * patch_; }  // per output
  int64_t image() const { return g_.in_h * g_.in_w * g_.in_c; }

  // Calls function(in_patch, in_image, inside) for each row of the kernel that overlaps the image at this position:
  // `inside` values of the patch from in_patch on are the values of the image from in_image on.
  template <class Function>
  void for_each_run(int64_t position, const Function& function) const {
    const int64_t top = position / g_.out_w * g_.stride_h - g_.top, left = position % g_.out_w * g_.stride_w - g_.left;
    const int64_t first = std::max<int64_t>(left, 0), last = std::min(left + g_.kernel_w, g_.in_w);
    if (first >= last) return;
    for (int64_t u = std::max<int64_t>(-top, 0); u < std::min(g_.kernel_h, g_.in_h - top); ++u)
      function((u * g_.kernel_w + first - left) * g_.in_c, ((top + u) * g_.in_w + first) * g_.in_c,
               (last - first) * g_.in_c);
  }

  // Copies the window of each image at this position; zeros outside the image.
  template <class T>
  void gather_patches(int64_t position, int64_t rows, const T* x, std::vector<float>& patches) const {
    std::fill(patches.begin(), patches.end(), 0.0f);
    for_each_run(position, [&](int64_t in_patch, int64_t in_image, int64_t inside) {
      for (int64_t n = 0; n < rows; ++n)
        std::copy_n(x + n * image() + in_image, inside, patches.data() + n * patch_ + in_patch);
    });
  }
  template <class T>
  void gather_gradients(int64_t position, const Slice& rows, const T* dy, std::vector<float>& gradients) const {
    for (int64_t n = rows.begin; n < rows.end; ++n)
      std::copy_n(dy + (n * positions_ + position) * g_.out_c, g_.out_c,
                  gradients.data() + (n - rows.begin) * g_.out_c);
  }

  template <class T>
  void forward(int64_t rows, const T* x, T* y) const {
    const float *weight = weight_.value.data(), *bias = bias_ ? bias_->value.data() : nullptr;
    parallel_for(positions_, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> patches(static_cast<size_t>(rows * patch_)), sums(static_cast<size_t>(rows * g_.out_c));
      for (int64_t p = begin; p < end; ++p) {
        gather_patches(p, rows, x, patches);
        gemm(Transpose::kNo, Transpose::kYes, rows, g_.out_c, patch_, patches.data(), patch_, weight + p * patch_,
             all_weights(), 0, sums.data(), g_.out_c);
        for (int64_t n = 0; n < rows; ++n)
          for (int64_t o = 0; o < g_.out_c; ++o)
            y[(n * positions_ + p) * g_.out_c + o] =
                sums[static_cast<size_t>(n * g_.out_c + o)] + (bias ? bias[o * positions_ + p] : 0.0f);
      }
    });
  }

  // Computes dx for some rows.
  template <class T>
  void give_back(const Slice& rows, const T* dy, T* dx) const {
    const int64_t count = rows.size();
    std::vector<float> gradients(static_cast<size_t>(count * g_.out_c)), patches(static_cast<size_t>(count * patch_)),
        sums(static_cast<size_t>(count * image()));
    for (int64_t p = 0; p < positions_; ++p) {
      gather_gradients(p, rows, dy, gradients);
      gemm(Transpose::kNo, Transpose::kNo, count, patch_, g_.out_c, gradients.data(), g_.out_c,
           weight_.value.data() + p * patch_, all_weights(), 0, patches.data(), patch_);
      for_each_run(p, [&](int64_t in_patch, int64_t in_image, int64_t inside) {
        for (int64_t n = 0; n < count; ++n) {
          const float* from = patches.data() + n * patch_ + in_patch;
          float* to = sums.data() + n * image() + in_image;
          for (int64_t i = 0; i < inside; ++i) to[i] += from[i];
        }
      });
    }
    std::copy(sums.begin(), sums.end(), dx + rows.begin * image());
  }

  template <class T>
  void sum_gradients(int64_t rows, const T* x, const T* dy) {
    const bool weighs = learns(weight_.role), biased = bias_ && learns(bias_->role);
    const float beta = weighs ? weight_.take_beta() : 0, bias_beta = biased ? bias_->take_beta() : 0;
    parallel_for(positions_, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> patches(static_cast<size_t>(rows * patch_)), gradients(static_cast<size_t>(rows * g_.out_c));
      for (int64_t p = begin; p < end; ++p) {
        gather_gradients(p, {0, rows}, dy, gradients);
        if (weighs) {
          gather_patches(p, rows, x, patches);
          gemm(Transpose::kYes, Transpose::kNo, g_.out_c, patch_, rows, gradients.data(), g_.out_c, patches.data(),
               patch_, beta, weight_.grad.data() + p * patch_, all_weights());
        }
        if (biased) add_bias_gradient(p, rows, gradients, bias_beta);
      }
    });
  }
  void add_bias_gradient(int64_t position, int64_t rows, const std::vector<float>& gradients, float beta) {
    for (int64_t o = 0; o < g_.out_c; ++o) {
      double sum = 0;
      for (int64_t n = 0; n < rows; ++n) sum += static_cast<double>(gradients[static_cast<size_t>(n * g_.out_c + o)]);
      float& grad = bias_->grad.data()[o * positions_ + position];
      grad = (beta == 0 ? 0 : beta * grad) + static_cast<float>(sum);
    }
  }

  ConvGeometry g_;
  int64_t positions_, patch_;  // number of positions of y; number of values in a window
  Param& weight_;
  Param* bias_;
};

}  // namespace

std::unique_ptr<Op> bind_local(Cpu, const ConvGeometry& geometry, int64_t, Param& weight, Param* bias) {
  return std::make_unique<LocalOp>(geometry, weight, bias);
}

}  // namespace owt
