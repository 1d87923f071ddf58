// nvJPEG of the simulated GPU: what tests can see of it and make it do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace simulated_gpu {

struct Jpegs {
  bool engines = true, kernels = true;  // back-ends that exist
  // By the bytes of a file: refuses a batch with such a file; leaves its image as it is, without an error.
  std::function<bool(size_t bytes)> refuses{}, skips{};
};
// For the lifetime of the object.
class WithJpegs {
 public:
  explicit WithJpegs(const Jpegs& jpegs);
  ~WithJpegs();
  WithJpegs(const WithJpegs&) = delete;
  WithJpegs& operator=(const WithJpegs&) = delete;
};
int64_t decoded_jpegs();  // in this process

}  // namespace simulated_gpu
