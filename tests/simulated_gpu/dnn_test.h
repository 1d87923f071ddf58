// cuDNN's backend for the tests of the simulated GPU.
#pragma once

#include <cudnn_graph.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/simulated_gpu/elements.h"
#include "tests/simulated_gpu/test_memory.h"

namespace simulated_gpu {

using Doubles = std::vector<double>;
using Dims = std::array<int64_t, 4>;  // N, C, H, W

inline int64_t elements(const Dims& d) { return d[0] * d[1] * d[2] * d[3]; }

class Object {
 public:
  explicit Object(cudnnBackendDescriptorType_t type) {
    EXPECT_EQ(cudnnBackendCreateDescriptor(type, &handle_), CUDNN_STATUS_SUCCESS);
  }
  ~Object() { cudnnBackendDestroyDescriptor(handle_); }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  cudnnBackendDescriptor_t get() const { return handle_; }
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const std::vector<T>& values) {
    EXPECT_EQ(cudnnBackendSetAttribute(handle_, name, type, static_cast<int64_t>(values.size()), values.data()),
              CUDNN_STATUS_SUCCESS)
        << name;
  }
  void set(cudnnBackendAttributeName_t name, const Object& child) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{child.handle_});
  }
  cudnnStatus_t finalize() { return cudnnBackendFinalize(handle_); }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

// A tensor in NHWC (or NCHW) order with its values in the order N, C, H, W.
struct TestTensor {
  Dims dims;
  bool bf16 = false, channels_last = true;
  Object descriptor{CUDNN_BACKEND_TENSOR_DESCRIPTOR};
  std::unique_ptr<DeviceArray<uint8_t>> memory;
  int64_t id;

  TestTensor(int64_t unique, Dims d, bool half = false, bool last = true, bool inside = false, bool by_value = false)
      : dims(d), bf16(half), channels_last(last), id(unique) {
    const int64_t c = d[1], h = d[2], w = d[3];
    const std::vector<int64_t> strides =
        last ? std::vector{h * w * c, int64_t{1}, w * c, c} : std::vector{c * h * w, h * w, w, int64_t{1}};
    descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::vector{id});
    descriptor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
                   std::vector{half ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT});
    descriptor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::vector<int64_t>(d.begin(), d.end()));
    descriptor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides);
    descriptor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::vector{int64_t{16}});
    const std::array<bool, 1> yes{true};
    if (inside) {
      EXPECT_EQ(cudnnBackendSetAttribute(descriptor.get(), CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes),
                CUDNN_STATUS_SUCCESS);
    }
    if (by_value) {
      EXPECT_EQ(cudnnBackendSetAttribute(descriptor.get(), CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes),
                CUDNN_STATUS_SUCCESS);
    }
    EXPECT_EQ(descriptor.finalize(), CUDNN_STATUS_SUCCESS);
    if (!inside && !by_value)
      memory = std::make_unique<DeviceArray<uint8_t>>(static_cast<size_t>(elements(d)) * (half ? 2 : 4));
  }

  ElementType type() const { return bf16 ? ElementType::kBf16 : ElementType::kF32; }
  int64_t place(int64_t i) const {
    const int64_t w = i % dims[3], h = i / dims[3] % dims[2], c = i / dims[3] / dims[2] % dims[1],
                  n = i / dims[3] / dims[2] / dims[1];
    return channels_last ? ((n * dims[2] + h) * dims[3] + w) * dims[1] + c : i;
  }
  void write(const Doubles& values, const owt::Stream& stream) const {
    std::vector<uint8_t> bytes(memory->count());
    for (int64_t i = 0; i < elements(dims); ++i)
      store(bytes.data(), type(), place(i), static_cast<float>(values[static_cast<size_t>(i)]));
    OWT_CUDA(cudaMemcpyAsync(memory->data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice, cuda_stream(stream)));
  }
  Doubles read(const owt::Stream& stream) const {
    const auto bytes = memory->read(stream);
    Doubles values;
    for (int64_t i = 0; i < elements(dims); ++i)
      values.push_back(static_cast<double>(load(bytes.data(), type(), place(i))));
    return values;
  }
  Doubles fill(const owt::Stream& stream, unsigned seed) const {
    std::mt19937 random(seed);
    Doubles values(static_cast<size_t>(elements(dims)));
    for (double& value : values) value = static_cast<double>(random() % 2001) / 1000 - 1;
    write(values, stream);
    return read(stream);  // rounded values
  }
};

// A convolution with everything that can go wrong in one: asymmetric padding, different strides, dilation, groups.
struct Conv {
  int64_t groups = 1;
  std::array<int64_t, 2> before{1, 0}, after{2, 1}, strides{2, 1}, dilations{1, 2};
  Dims x{2, 4, 6, 7}, w{6, 4, 3, 2};

  explicit Conv(int64_t g = 1) : groups(g) { w[1] /= g; }
  Dims y() const {
    Dims y{x[0], w[0], 0, 0};
    for (size_t i = 0; i < 2; ++i)
      y[2 + i] = (x[2 + i] + before[i] + after[i] - dilations[i] * (w[2 + i] - 1) - 1) / strides[i] + 1;
    return y;
  }
  // Calls body(index in x, index in w, index in y) for all elements that meet.
  template <class Body>
  void each(Body body) const {
    const Dims out = y();
    for (int64_t n = 0; n < x[0]; ++n)
      for (int64_t k = 0; k < w[0]; ++k)
        for (int64_t i = 0; i < out[2]; ++i)
          for (int64_t j = 0; j < out[3]; ++j)
            for (int64_t c = 0; c < w[1]; ++c)
              for (int64_t u = 0; u < w[2]; ++u)
                for (int64_t v = 0; v < w[3]; ++v) {
                  const int64_t h = i * strides[0] - before[0] + u * dilations[0],
                                q = j * strides[1] - before[1] + v * dilations[1];
                  if (h < 0 || h >= x[2] || q < 0 || q >= x[3]) continue;
                  const int64_t channel = k / (w[0] / groups) * w[1] + c;
                  body(static_cast<size_t>(((n * x[1] + channel) * x[2] + h) * x[3] + q),
                       static_cast<size_t>(((k * w[1] + c) * w[2] + u) * w[3] + v),
                       static_cast<size_t>(((n * out[1] + k) * out[2] + i) * out[3] + j));
                }
  }
  void describe(Object* object) const {
    const auto both = [](const std::array<int64_t, 2>& a) { return std::vector<int64_t>(a.begin(), a.end()); };
    object->set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
    object->set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, std::vector{CUDNN_CROSS_CORRELATION});
    object->set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::vector{int64_t{2}});
    object->set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, both(before));
    object->set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, both(after));
    object->set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, both(strides));
    object->set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, both(dilations));
    EXPECT_EQ(object->finalize(), CUDNN_STATUS_SUCCESS);
  }
};

class Dnn : public testing::Test {
 protected:
  Dnn() {
    EXPECT_EQ(cudnnCreate(&handle_), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnSetStream(handle_, cuda_stream(stream_)), CUDNN_STATUS_SUCCESS);
  }
  ~Dnn() override { cudnnDestroy(handle_); }

  using Operations = std::vector<std::unique_ptr<Object>>;
  using Tensors = std::vector<const TestTensor*>;

  Object& add(cudnnBackendDescriptorType_t type) {
    operations_.push_back(std::make_unique<Object>(type));
    return *operations_.back();
  }
  void forward(const Conv& conv, const TestTensor& x, const TestTensor& w, const TestTensor& y) {
    Object settings(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    conv.describe(&settings);
    Object& operation = add(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x.descriptor);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w.descriptor);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y.descriptor);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, settings);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, std::vector{1.0f});
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, std::vector{0.0f});
    EXPECT_EQ(operation.finalize(), CUDNN_STATUS_SUCCESS);
  }
  void data_gradient(const Conv& conv, const TestTensor& dx, const TestTensor& w, const TestTensor& dy) {
    Object settings(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    conv.describe(&settings);
    Object& operation = add(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, dx.descriptor);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w.descriptor);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, dy.descriptor);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, settings);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, std::vector{1.0f});
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, std::vector{0.0f});
    EXPECT_EQ(operation.finalize(), CUDNN_STATUS_SUCCESS);
  }
  void reduce(const TestTensor& x, const TestTensor& sums) {
    Object settings(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    settings.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
                 std::vector{CUDNN_REDUCE_TENSOR_ADD});
    settings.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
    EXPECT_EQ(settings.finalize(), CUDNN_STATUS_SUCCESS);
    Object& operation = add(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, settings);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.descriptor);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, sums.descriptor);
    EXPECT_EQ(operation.finalize(), CUDNN_STATUS_SUCCESS);
  }
  void apply(cudnnPointwiseMode_t mode,
             const std::vector<std::pair<cudnnBackendAttributeName_t, const TestTensor*>>& tensors) {
    Object settings(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    settings.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::vector{mode});
    settings.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
    EXPECT_EQ(settings.finalize(), CUDNN_STATUS_SUCCESS);
    Object& operation = add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, settings);
    for (const auto& [name, tensor] : tensors) operation.set(name, tensor->descriptor);
    EXPECT_EQ(operation.finalize(), CUDNN_STATUS_SUCCESS);
  }

  struct Candidate {
    std::unique_ptr<Object> plan;
    int64_t workspace = 0;
    std::vector<cudnnBackendNumericalNote_t> notes;
  };

  std::unique_ptr<Object> heuristics(cudnnBackendHeurMode_t mode) {
    std::vector<cudnnBackendDescriptor_t> all;
    for (const auto& operation : operations_) all.push_back(operation->get());
    Object graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, all);
    EXPECT_EQ(graph.finalize(), CUDNN_STATUS_SUCCESS);
    auto heuristics = std::make_unique<Object>(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics->set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristics->set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector{mode});
    return heuristics;
  }

  std::vector<Candidate> candidates(cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A) {
    const auto heuristics = this->heuristics(mode);
    EXPECT_EQ(heuristics->finalize(), CUDNN_STATUS_SUCCESS);
    int64_t count = 0;
    EXPECT_EQ(cudnnBackendGetAttribute(heuristics->get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                       0, &count, nullptr),
              CUDNN_STATUS_SUCCESS);
    Operations configurations;
    std::vector<cudnnBackendDescriptor_t> handles;
    for (int64_t i = 0; i < count; ++i) {
      configurations.push_back(std::make_unique<Object>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
      handles.push_back(configurations.back()->get());
    }
    EXPECT_EQ(cudnnBackendGetAttribute(heuristics->get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                       count, &count, handles.data()),
              CUDNN_STATUS_SUCCESS);
    std::vector<Candidate> all;
    for (const auto& configuration : configurations) all.push_back(candidate(*configuration));
    return all;
  }

  Candidate candidate(const Object& configuration) {
    Candidate made;
    made.plan = std::make_unique<Object>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    made.plan->set(static_cast<cudnnBackendAttributeName_t>(400), CUDNN_TYPE_HANDLE, std::vector{handle_});
    made.plan->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    EXPECT_EQ(made.plan->finalize(), CUDNN_STATUS_SUCCESS);
    cudnnBackendGetAttribute(made.plan->get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, nullptr,
                             &made.workspace);
    const Object engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t into = engine.get();
    cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                             nullptr, &into);
    int64_t count = 0;
    made.notes.resize(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                             CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, made.notes.data());
    made.notes.resize(static_cast<size_t>(count));
    return made;
  }

  cudnnStatus_t run(const Object& plan, int64_t workspace_bytes, const Tensors& tensors, float* number = nullptr) {
    const DeviceArray<uint8_t> workspace(static_cast<size_t>(workspace_bytes) + 1);
    std::vector<int64_t> ids;
    std::vector<void*> memory;
    for (const TestTensor* tensor : tensors) {
      ids.push_back(tensor->id);
      memory.push_back(tensor->memory ? static_cast<void*>(tensor->memory->data()) : number);
    }
    Object pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, memory);
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, std::vector{static_cast<void*>(workspace.data())});
    EXPECT_EQ(pack.finalize(), CUDNN_STATUS_SUCCESS);
    return cudnnBackendExecute(handle_, plan.get(), pack.get());
  }
  // The deterministic engine that adds in double precision.
  void run_exactly(const Tensors& tensors, float* number = nullptr) {
    for (const Candidate& made : candidates())
      if (made.notes.empty()) {
        ASSERT_EQ(run(*made.plan, made.workspace, tensors, number), CUDNN_STATUS_SUCCESS);
      }
  }

  owt::Stream stream_{owt::Device::kCuda};
  cudnnHandle_t handle_ = nullptr;
  Operations operations_;
};

}  // namespace simulated_gpu
