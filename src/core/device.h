// Devices as tags: an implementation for a device is an overload on its tag, `bind_relu(Cpu, ...)`.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

namespace owt {

enum class Device { kCpu, kCuda };

// The arithmetic of a device. Weights, their gradients and the optimizer's state are single precision in all three.
enum class Precision {
  kFp32,
  kTf32,  // activations are f32; products round their factors to 10 bits of mantissa (tensor cores)
  kBf16,  // activations and the factors of products are bf16, sums are f32
};

struct Cpu {
  Precision precision = Precision::kFp32;
  int64_t canonical_rows = 0;  // rows in a block of canonical sums (core/canonical.h); 0: sums are ordinary
};
struct Cuda {
  Precision precision = Precision::kFp32;
  bool deterministic = true;  // only algorithms that give the same bits every time
};

// Where and how a rank computes.
struct Compute {
  Compute(Device where = Device::kCpu, Precision how = Precision::kFp32) : device(where), precision(how) {}

  Device device;
  Precision precision;
  bool deterministic = true;   // see Cuda; the CPU always is
  int64_t canonical_rows = 0;  // see Cpu

  bool canonical() const { return canonical_rows > 0; }
};

const char* name_of(Device device);        // "cpu", "cuda"
const char* name_of(Precision precision);  // "fp32", "tf32", "bf16"

// From "cpu", "cuda" or "auto" (cuda if there is a GPU). Throws Error for another name. For "cuda" without a usable GPU
// it throws with the reason.
Device device_from(const std::string& name);
Precision precision_from(const std::string& name);  // throws Error for an unknown one

inline std::ostream& operator<<(std::ostream& out, Device device) { return out << name_of(device); }
inline std::ostream& operator<<(std::ostream& out, Precision precision) { return out << name_of(precision); }

}  // namespace owt
