// Device memory for the tests of the simulated GPU.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "src/core/cuda.h"

namespace simulated_gpu {

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) { OWT_CUDA(cudaMalloc(&memory_, count * sizeof(T))); }
  DeviceArray(const std::vector<T>& values, const owt::Stream& stream) : DeviceArray(values.size()) {
    OWT_CUDA(
        cudaMemcpyAsync(memory_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice, owt::cuda_stream(stream)));
  }
  ~DeviceArray() { cudaFree(memory_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return static_cast<T*>(memory_); }
  size_t count() const { return count_; }

  // The contents after the stream has done all queued work.
  std::vector<T> read(const owt::Stream& stream) const {
    std::vector<T> values(count_);
    OWT_CUDA(
        cudaMemcpyAsync(values.data(), memory_, count_ * sizeof(T), cudaMemcpyDeviceToHost, owt::cuda_stream(stream)));
    return values;
  }

 private:
  size_t count_;
  void* memory_ = nullptr;
};

}  // namespace simulated_gpu
