// Which filters workers of a parameter server apply to gradients before they push them (push_filters.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace owt {

struct FilterSettings {
  enum class Value { kF32, kBf16, kFp16, kFix8, kFix16, kCoin8, kCoin16 };

  double significant = 0;  // >= 0; 0: off
  double kkt = 0;          // >= 0; 0: off
  double top = 1;          // (0, 1]; 1: off
  double skip = 1;         // (0, 1], the fraction kept; 1: off
  Value value = Value::kF32;

  bool any() const { return *this != FilterSettings(); }
  bool chooses() const { return significant > 0 || kkt > 0 || top < 1 || skip < 1; }
  bool holds_back() const { return significant > 0 || top < 1; }
  bool fixes() const;           // values are levels between m and M
  int64_t value_bytes() const;  // bytes of one value
  // The fraction of entries that are sent, as far as the settings determine it; the effect of significant and kkt is
  // unknown.
  double usual_share() const { return top * skip; }
  // The bytes of a message for `entries` entries of this many tensors.
  int64_t message_bytes(int64_t entries, int64_t sent, int64_t tensors = 1) const;
  std::string text() const;  // for people; empty: none
  bool operator==(const FilterSettings&) const = default;
};

// Parses a list such as {"top:0.01", "fix8"}. Throws Error for an unknown word, and for two of a kind.
FilterSettings filters_from(const std::vector<std::string>& words);

}  // namespace owt
