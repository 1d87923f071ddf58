// Every algorithm that may be chosen on a GPU is bit-reproducible, also if ranks share the GPU and their kernels run at
// the same time. Skipped without a GPU.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "layers/gpu/conv_plans.h"
#include "layers/gpu/cudnn.h"
#include "layers/gpu/small_conv.h"
#include "layers/gpu/small_conv_weights.h"
#include "src/core/bf16.h"
#include "src/core/cuda.h"
#include "src/core/gpus.h"
#include "src/core/matmul.h"

namespace owt {
namespace {

constexpr int kThreads = 3, kRuns = 20;

std::vector<char> random_bytes(int64_t elements, DType dtype, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<char> bytes(static_cast<size_t>(elements * size_of(dtype)));
  for (int64_t i = 0; i < elements; ++i) {
    const float value = normal(random);
    const Bf16 rounded(value);
    if (dtype == DType::kF32)
      std::memcpy(bytes.data() + 4 * i, &value, 4);
    else
      std::memcpy(bytes.data() + 2 * i, &rounded, 2);
  }
  return bytes;
}

Tensor on_gpu(const Shape& shape, DType dtype, unsigned seed) {
  const std::vector<char> bytes = random_bytes(shape.elements(), dtype, seed);
  Tensor tensor(shape, dtype, Device::kCuda);
  OWT_CUDA(cudaMemcpy(tensor.raw(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  OWT_CUDA(cudaDeviceSynchronize());  // small copies may return before they are done
  return tensor;
}

std::vector<char> bytes_of(const Tensor& tensor, const Stream& stream) {
  std::vector<char> bytes(static_cast<size_t>(tensor.bytes()));
  OWT_CUDA(cudaMemcpyAsync(bytes.data(), tensor.raw(), bytes.size(), cudaMemcpyDeviceToHost, cuda_stream(stream)));
  stream.synchronize();
  return bytes;
}

// Counts runs that differ from the first, in threads at the same time. start(): creates a thread's data and returns a
// function that runs once and returns the bits.
template <class Start>
int unlike_runs(const Start& start) {
  std::vector<int> unlike(kThreads);
  std::vector<char> wanted;
  {
    const Stream stream(Device::kCuda);
    wanted = start(stream)();
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      const Stream stream(Device::kCuda);
      auto run = start(stream);
      for (int i = 0; i < kRuns; ++i) unlike[static_cast<size_t>(t)] += run() != wanted;
    });
  for (std::thread& thread : threads) thread.join();
  int all = 0;
  for (const int each : unlike) all += each;
  return all;
}

struct Conv {
  ConvGeometry geometry;
  int64_t rows;
};

enum class Product { kForward, kWeightGradient, kDataGradient, kMaskedDataGradient };

class CudaRepeats : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    if (!gpu_present()) GTEST_SKIP() << find_gpus().why_none;
  }
};

// The convolutions of the small recipe of the tests, on a rank's rows, and larger ones.
const std::vector<Conv> kConvs{
    {{12, 12, 3, 12, 12, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1}, 4},  {{12, 12, 3, 12, 12, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1}, 8},
    {{6, 6, 16, 6, 6, 16, 3, 3, 1, 1, 1, 1, 1, 1, 2}, 4},     {{6, 6, 16, 6, 6, 16, 3, 3, 1, 1, 1, 1, 1, 1, 2}, 12},
    {{10, 10, 8, 10, 10, 10, 3, 3, 1, 1, 1, 1, 1, 1, 1}, 8},  {{32, 32, 3, 32, 32, 32, 5, 5, 1, 1, 2, 2, 2, 2, 1}, 16},
    {{16, 16, 32, 16, 16, 32, 5, 5, 1, 1, 2, 2, 2, 2, 1}, 16}};

CudnnGraph graph_of(const Conv& conv, Product product, DType dtype) {
  switch (product) {
    case Product::kForward:
      return conv_forward_graph(conv.geometry, conv.rows, dtype);
    case Product::kWeightGradient:
      return conv_weight_gradient_graph(conv.geometry, conv.rows, dtype);
    case Product::kDataGradient:
      return conv_data_gradient_graph(conv.geometry, conv.rows, dtype);
    case Product::kMaskedDataGradient:
      return conv_masked_data_gradient_graph(conv.geometry, conv.rows, dtype, true);
  }
  return conv_forward_graph(conv.geometry, conv.rows, dtype);
}

std::string engine_of(const std::string& json) {
  const size_t at = json.find("\"engineId\"");
  return at == std::string::npos ? json : json.substr(at, json.size() - at - 1);
}

TEST_P(CudaRepeats, EveryPlanOfCudnnThatIsSaidTo) {
  const DType dtype = activation_type(GetParam());
  PlanRules rules;
  rules.tensor_cores = GetParam() != Precision::kFp32;
  for (const Conv& conv : kConvs)
    for (const Product product :
         {Product::kForward, Product::kWeightGradient, Product::kDataGradient, Product::kMaskedDataGradient}) {
      const bool masked = product == Product::kMaskedDataGradient;
      rules.most_compiled = masked ? 1 : 0;  // making one takes seconds
      const CudnnGraph graph = graph_of(conv, product, dtype);
      const Stream first(Device::kCuda);
      std::vector<std::string> plans;
      for_each_plan(graph, rules, PlanTarget::this_gpu(first), [&](const CudnnPlan& plan) {
        plans.push_back(plan.json());
        return PlanVerdict::kTaken;
      });
      for (const std::string& json : plans) {
        const int unlike = unlike_runs([&](const Stream& stream) {
          const auto plan =
              std::make_shared<CudnnPlan>(CudnnPlan::from_json(json, PlanTarget::this_gpu(stream)).value());
          const ConvGeometry& g = conv.geometry;
          std::map<CudnnGraph::Id, Shape> shapes{{kConvX, {conv.rows, g.in_h, g.in_w, g.in_c}},
                                                 {kConvW, {g.out_c, g.kernel_h, g.kernel_w, g.in_c / g.groups}},
                                                 {kConvY, {conv.rows, g.out_h, g.out_w, g.out_c}}};
          if (masked) shapes[kConvBias] = {g.in_c}, shapes[kConvSeen] = shapes[kConvX];
          std::vector<Tensor> tensors;
          std::vector<CudnnPlan::Binding> bindings;
          for (const auto& [id, shape] : shapes) {
            tensors.push_back(on_gpu(shape, id == kConvBias ? DType::kF32 : dtype, static_cast<unsigned>(id)));
            bindings.push_back({id, tensors.back().raw()});
          }
          const size_t made = product == Product::kForward ? 2 : product == Product::kWeightGradient ? 1 : 0;
          Tensor workspace({std::max<int64_t>(plan->workspace_bytes(), 1)}, DType::kU8, Device::kCuda);
          return [=, &stream]() mutable {
            plan->run(stream, bindings, workspace.raw());
            std::vector<char> results = bytes_of(tensors[made], stream);
            const std::vector<char> sums = masked ? bytes_of(tensors[kConvBias - 1], stream) : std::vector<char>();
            results.insert(results.end(), sums.begin(), sums.end());
            return results;
          };
        });
        EXPECT_EQ(unlike, 0) << "of " << kThreads * kRuns << " runs\n" << graph.text() << engine_of(json);
      }
    }
}

TEST_P(CudaRepeats, TheChosenProductsOfMatrices) {
  const DType dtype = activation_type(GetParam());
  constexpr auto kNo = Transpose::kNo, kYes = Transpose::kYes;
  for (const int64_t rows : {1, 2, 4, 8, 12, 24, 128})
    for (const auto& [in, out] : std::vector<std::array<int64_t, 2>>{{144, 22}, {22, 17}, {17, 10}, {1024, 64}}) {
      const MatmulForm forms[]{{rows, out, in, kNo, kYes, in, in, out, GetParam(), dtype},
                               {rows, in, out, kNo, kNo, out, in, in, GetParam(), dtype},
                               {out, in, rows, kYes, kNo, out, in, in, GetParam(), DType::kF32}};
      for (const MatmulForm& form : forms) {
        const int unlike = unlike_runs([&](const Stream& stream) {
          const Tensor a = on_gpu({form.m, form.k}, dtype, 1), b = on_gpu({form.k, form.n}, dtype, 2);
          Tensor c = on_gpu({form.m, form.n}, form.product, 3);
          const auto product = std::make_shared<Matmul>(form);
          return [=, &stream]() mutable {
            (*product)(a.raw(), b.raw(), nullptr, 0, c.raw(), stream);
            return bytes_of(c, stream);
          };
        });
        EXPECT_EQ(unlike, 0) << "of " << kThreads * kRuns << " runs of " << form;
      }
    }
}

TEST_P(CudaRepeats, OurOwnConvolutions) {
  if (GetParam() != Precision::kBf16) GTEST_SKIP() << "our own kernels are for bf16";
  constexpr DType kType = DType::kBF16;
  for (const auto& [g, rows] : kConvs) {
    if (g.groups > 1) continue;
    const auto forward = SmallConv::forward(g, g.in_c, rows, kType), data = SmallConv::data_gradient(g, rows, kType);
    ASSERT_TRUE(forward && data);
    const Shape x_shape{rows, g.in_h, g.in_w, g.in_c}, y_shape{rows, g.out_h, g.out_w, g.out_c};
    for (const Product product : {Product::kForward, Product::kDataGradient, Product::kWeightGradient}) {
      const int unlike = unlike_runs([&, g = g, rows = rows](const Stream& stream) {
        Tensor x = on_gpu(x_shape, kType, 1), y = on_gpu(y_shape, kType, 2);
        Tensor w = on_gpu({g.out_c, g.kernel_h, g.kernel_w, g.in_c}, kType, 3);
        const auto weights = SmallConvWeights::gradient(g, g.in_c, rows, kType);
        Tensor workspace({weights->workspace_bytes()}, DType::kU8, Device::kCuda);
        return [=, &forward, &data, &stream]() mutable {
          if (product == Product::kForward) {
            forward->queue(x.raw(), w.raw(), nullptr, true, y.raw(), stream);
            return bytes_of(y, stream);
          }
          if (product == Product::kDataGradient) {
            data->queue(y.raw(), w.raw(), nullptr, false, x.raw(), stream);
            return bytes_of(x, stream);
          }
          weights->queue(x.raw(), y.raw(), 0, w, workspace.raw(), stream);
          return bytes_of(w, stream);
        };
      });
      EXPECT_EQ(unlike, 0) << "of " << kThreads * kRuns << " runs of product " << static_cast<int>(product) << " of "
                           << g.in_c << " to " << g.out_c << " channels";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, CudaRepeats, testing::Values(Precision::kFp32, Precision::kTf32, Precision::kBf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace owt
