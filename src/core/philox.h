// Random numbers as a function of their purpose: Philox4x32-10 (Salmon et al. 2011) in counter mode.
//
// A number depends on the seed, the stream (its purpose), a name (layer, parameter), a step or epoch, and the global
// index of the element or sample. It does not depend on ranks, threads or the order of calls.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <Random123/philox.h>

namespace owt {

enum class RandomStream : uint32_t { kInit = 1, kDropout, kShuffle, kAugment, kSynthetic, kTest, kVirtual, kSample };

class Philox {
 public:
  Philox(uint64_t seed, RandomStream stream, uint64_t step = 0, std::string_view name = {})
      : key_{{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}},
        step_(static_cast<uint32_t>(step)),
        purpose_(static_cast<uint32_t>(stream) << 24 | (hash(name) & 0xffffff)) {}

  // Block `index`: four independent 32-bit numbers.
  std::array<uint32_t, 4> block(uint64_t index) const {
    const r123::Philox4x32::ctr_type counter{
        {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), step_, purpose_}};
    const auto out = r123::Philox4x32()(counter, key_);
    return {out[0], out[1], out[2], out[3]};
  }

  uint32_t bits(uint64_t element) const { return block(element / 4)[element % 4]; }
  // Uniform in [0, 1).
  float uniform(uint64_t element) const { return to_uniform(bits(element)); }
  std::array<float, 4> uniforms(uint64_t index) const {  // uniform() of the block's four numbers
    const auto four = block(index);
    return {to_uniform(four[0]), to_uniform(four[1]), to_uniform(four[2]), to_uniform(four[3])};
  }
  // Standard normal (Box-Muller); elements 2i and 2i+1 are a pair.
  float normal(uint64_t element) const { return normals(element / 4)[element % 4]; }
  std::array<float, 4> normals(uint64_t index) const;  // normal() of the block's four numbers

  static float to_uniform(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

  // All inputs of the numbers except the index, for kernels (philox.cuh).
  struct Words {
    uint32_t key[2], step, purpose;
  };
  Words words() const { return {{key_[0], key_[1]}, step_, purpose_}; }

 private:
  static uint32_t hash(std::string_view name) {  // FNV-1a
    uint32_t h = 2166136261u;
    for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
    return h;
  }

  r123::Philox4x32::key_type key_;
  uint32_t step_, purpose_;
};

}  // namespace owt
