#include "layers/softmax_loss.h"

#include <limits>

#include "src/core/elements.cuh"
#include "src/core/launch.cuh"

namespace owt {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr unsigned kWarp = 32, kAllLanes = 0xffffffff, kMaxWarps = 32;
constexpr unsigned kAdders = 256;  // threads that add up the rows

struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
  template <class V>
  __device__ V operator()(V a, V b) const {
    return a + b;
  }
};

// One value of all threads of a block, the same in each. For blocks of whole warps.
template <class V, class Combine>
__device__ V reduce_block(V value, Combine combine) {
  __shared__ V of_warp[kMaxWarps];
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = of_warp[0];
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) value = combine(value, of_warp[warp]);
  __syncthreads();  // before the next reduction writes
  return value;
}

// Of one row, for the sums.
struct RowResult {
  double loss, top1, top5;
};

// A block per row. The row is read three times, but from memory once: the other times it is in a cache.
template <class T>
__global__ void softmax_rows(const T* logits, const int32_t* labels, int classes, float weight, T* dlogits,
                             RowResult* results) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * classes;
  const T* x = logits + first;
  const int label = labels[blockIdx.x], thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const bool known = label >= 0 && label < classes;
  const float own = known ? to_float(x[label]) : kNaN;

  float largest = -kInfinity;
  int before = 0;  // classes that rank before the label
  for (int c = thread; c < classes; c += threads) {
    const float logit = to_float(x[c]);
    largest = fmaxf(largest, logit);
    before += logit > own || (logit == own && c < label);
  }
  largest = reduce_block(largest, Larger{});
  before = reduce_block(before, Sum{});

  // NaN logits did not count for the largest; they show in the sum.
  double sum = 0;
  for (int c = thread; c < classes; c += threads) sum += static_cast<double>(expf(to_float(x[c]) - largest));
  sum = reduce_block(sum, Sum{});

  if (dlogits) {
    const float scale = known ? static_cast<float>(static_cast<double>(weight) / sum) : kNaN;
    for (int c = thread; c < classes; c += threads) {
      const float share = expf(to_float(x[c]) - largest) * scale;
      dlogits[first + c] = from_float<T>(c == label ? share - weight : share);
    }
  }
  if (thread != 0) return;
  const double loss = log(sum) - (static_cast<double>(own) - static_cast<double>(largest));
  const bool valid = loss == loss;  // not NaN
  results[blockIdx.x] = {loss, valid && before < 1 ? 1.0 : 0.0, valid && before < 5 ? 1.0 : 0.0};
}

// One block, so that the order of the additions depends on nothing but the number of rows.
__global__ void add_rows(const RowResult* results, int rows, double* sums) {
  double loss = 0, top1 = 0, top5 = 0;
  for (int row = static_cast<int>(threadIdx.x); row < rows; row += static_cast<int>(blockDim.x)) {
    loss += results[row].loss;
    top1 += results[row].top1;
    top5 += results[row].top5;
  }
  loss = reduce_block(loss, Sum{});
  top1 = reduce_block(top1, Sum{});
  top5 = reduce_block(top5, Sum{});
  if (threadIdx.x != 0) return;
  sums[kLossSum] += loss;
  sums[kTop1Sum] += top1;
  sums[kTop5Sum] += top5;
  sums[kRowSum] += rows;
}

// Threads for a row: about 16 classes each in a large row, and a single warp while that is enough.
unsigned threads_for(int classes) {
  if (classes <= 128) return kWarp;
  return classes <= 8192 ? 8 * kWarp : kMaxWarps * kWarp;
}

template <class T>
class CudaLoss : public SoftmaxLoss {
 public:
  CudaLoss(int classes, int64_t rows)
      : classes_(classes),
        rows_(rows),
        results_({rows, static_cast<int64_t>(sizeof(RowResult) / sizeof(double))}, DType::kF64, Device::kCuda) {
    OWT_CHECK(classes >= 1, "a loss over ", classes, " classes");
  }

  void run(const Pass& pass, const Tensor& logits, const Tensor& labels, Tensor* dlogits, Tensor& sums) override {
    const int64_t rows = logits.shape().rows();
    OWT_CHECK(rows <= rows_, rows, " rows, bound for at most ", rows_);
    OWT_CHECK_EQ(labels.elements(), rows, "one label per row");
    if (rows == 0) return;
    OWT_CHECK_EQ(logits.shape().row_elements(), int64_t{classes_}, "one logit per class");
    const float weight = 1.0f / static_cast<float>(pass.step_rows);
    auto* results = static_cast<RowResult*>(results_.raw());
    launch(softmax_rows<T>, static_cast<unsigned>(rows), threads_for(classes_), *pass.stream, logits.data<T>(),
           labels.data<int32_t>(), classes_, weight, dlogits ? dlogits->data<T>() : nullptr, results);
    launch(add_rows, 1, kAdders, *pass.stream, results, rows, sums.data<double>());
  }

 private:
  int classes_;
  int64_t rows_;
  Tensor results_;  // a RowResult per row
};

}  // namespace

std::unique_ptr<SoftmaxLoss> bind_softmax_loss(Cuda cuda, int classes, int64_t rows) {
  std::unique_ptr<SoftmaxLoss> loss;
  with_element(activation_type(cuda.precision),
               [&](auto element) { loss = std::make_unique<CudaLoss<decltype(element)>>(classes, rows); });
  return loss;
}

}  // namespace owt
