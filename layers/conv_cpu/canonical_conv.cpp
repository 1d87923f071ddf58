#include "layers/conv_cpu/canonical_conv.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "layers/conv_cpu/conv_trial.h"
#include "src/core/canonical.h"
#include "src/core/threads.h"

namespace owt {
namespace {

constexpr int64_t kGrain = 1 << 14;  // sums per thread that justify waking it

// The sums of the blocks of one thread, and the gradient of its current block.
struct ThreadSums {
  explicit ThreadSums(int64_t elements) : sums(static_cast<size_t>(elements)), block(static_cast<size_t>(elements)) {}

  void add_block() {
    double* const to = sums.data();
    const float* const from = block.data();
#pragma omp simd
    for (size_t i = 0; i < block.size(); ++i) to[i] += canonical(static_cast<double>(from[i]));
  }

  std::vector<double> sums;
  std::vector<float> block;
};

// sums[i] = beta * sums[i] + the threads' sums of element `first` + i
void add_threads(const std::vector<ThreadSums>& threads, int64_t first, int64_t count, float beta, double* sums) {
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    if (beta == 0) std::fill(sums + begin, sums + end, 0.0);
    for (const ThreadSums& each : threads)
      for (int64_t i = begin; i < end; ++i) sums[i] += each.sums[static_cast<size_t>(first + i)];
  });
}

// A pass for blocks of `rows` rows; one for each thread, because a pass may have a workspace.
// It may want the weights packed in another way than a pass for other rows.
struct BlockPass {
  int64_t rows = 0;
  std::vector<std::unique_ptr<ConvPass>> of_threads;

  const ConvPass& any() const { return *of_threads.front(); }
};

constexpr size_t kPackedAlignment = 64;  // bytes; see ConvPass::pack
size_t aligned_bytes(const ConvPass& pass) {
  return (pass.packed_bytes() + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
}

class CanonicalConv : public ConvPass {
 public:
  CanonicalConv(const ConvShape& shape, PassKind kind, ConvAlgorithm algorithm, int64_t block_rows)
      : geometry_(shape.geometry),
        in_(geometry_.in_h * geometry_.in_w * geometry_.in_c),
        out_(geometry_.out_h * geometry_.out_w * geometry_.out_c),
        blocks_{shape.rows, block_rows} {
    OWT_CHECK(shape.images == DType::kF32, "canonical sums are of f32");
    const int team = team_size();
    set_team_size(1);
    for (const int64_t block : {int64_t{0}, blocks_.count() - 1}) {
      ConvShape of_block = shape;
      of_block.rows = blocks_.of(block).size();
      if (!passes_.empty() && passes_.front().rows == of_block.rows) continue;
      passes_.push_back({of_block.rows, {}});
      for (int thread = 0; thread < team; ++thread)
        passes_.back().of_threads.push_back(make_conv_pass(of_block, kind, algorithm));
    }
    set_team_size(team);
  }

  // The packed weights of the passes, one after the other.
  size_t packed_bytes() const override {
    size_t bytes = 0;
    for (const BlockPass& each : passes_) bytes += aligned_bytes(each.any());
    return bytes;
  }
  void pack(const float* weights, void* packed) const override {
    auto* to = static_cast<std::byte*>(packed);
    for (const BlockPass& each : passes_) {
      each.any().pack(weights, to);
      to += aligned_bytes(each.any());
    }
  }

  void forward(const void* x, const void* packed, const float* bias, void* y) const override {
    each_block([&](const ConvPass& pass, size_t first, int64_t row, int) {
      pass.forward(static_cast<const float*>(x) + row * in_, static_cast<const std::byte*>(packed) + first, bias,
                   static_cast<float*>(y) + row * out_);
    });
  }

  void backward_data(const void* dy, const void* packed, void* dx) const override {
    each_block([&](const ConvPass& pass, size_t first, int64_t row, int) {
      pass.backward_data(static_cast<const float*>(dy) + row * out_, static_cast<const std::byte*>(packed) + first,
                         static_cast<float*>(dx) + row * in_);
    });
  }

  void canonical_gradients(const float* x, const float* dy, float beta, double* weights, float bias_beta,
                           double* bias) const override {
    const int64_t count = weight_elements();
    std::vector<ThreadSums> threads(passes_.front().of_threads.size(),
                                    ThreadSums(count + (bias ? geometry_.out_c : 0)));
    each_block([&](const ConvPass& pass, size_t, int64_t row, int thread) {
      ThreadSums& own = threads[static_cast<size_t>(thread)];
      float* const gradient = own.block.data();
      pass.backward_weights(x + row * in_, dy + row * out_, 0, gradient, 0, bias ? gradient + count : nullptr);
      own.add_block();
    });
    add_threads(threads, 0, count, beta, weights);
    if (bias) add_threads(threads, count, geometry_.out_c, bias_beta, bias);
  }

 private:
  int64_t weight_elements() const {
    return geometry_.out_c * geometry_.kernel_h * geometry_.kernel_w * (geometry_.in_c / geometry_.groups);
  }

  // Calls function(pass, place of its packed weights in bytes, first row, thread) for every block.
  template <class Function>
  void each_block(const Function& function) const {
    for_each_alone(blocks_.count(), [&](int64_t block, int thread) {
      const Slice rows = blocks_.of(block);
      const bool usual = passes_.front().rows == rows.size();
      const BlockPass& pass = usual ? passes_.front() : passes_.back();
      function(*pass.of_threads[static_cast<size_t>(thread)], usual ? 0 : aligned_bytes(passes_.front().any()),
               rows.begin, thread);
    });
  }

  ConvGeometry geometry_;
  int64_t in_, out_;  // elements of a row
  RowGroups blocks_;
  std::vector<BlockPass> passes_;  // one for the usual block; one for the last block, if it has other rows
};

}  // namespace

std::unique_ptr<ConvPass> make_canonical_conv(const ConvShape& shape, PassKind kind, ConvAlgorithm algorithm,
                                              int64_t block_rows) {
  return std::make_unique<CanonicalConv>(shape, kind, algorithm, block_rows);
}

}  // namespace owt
