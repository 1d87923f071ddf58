#include "layers/softmax_rows.cuh"

namespace owt {
namespace {

constexpr unsigned kAdders = 256;  // threads that add up the rows

// One block, so that the order of the additions depends on nothing but the number of rows.
__global__ void add_results(const RowResult* results, int rows, double* sums) {
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

}  // namespace

void add_rows(const RowResult* results, int64_t rows, Tensor& sums, const Stream& stream) {
  launch(add_results, 1, kAdders, stream, results, rows, sums.data<double>());
}

}  // namespace owt
