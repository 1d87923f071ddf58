// What a worker leaves out of a gradient, or rounds, before it is pushed, so that fewer bytes travel. A gradient is
// filtered tensor by tensor; the filters stack: first those that choose entries, then the type of what is sent.
//
//   significant:T  entries not above T times the root of the tensor's mean square stay here, and are added to the next
//                  gradient's
//   kkt:T          entries whose weight is 0 and which are not above T times the penalty's share of the push, so that
//                  with T <= 1 they alone could not move it
//   top:P          of a tensor the share P of its entries that are largest, at least one; the others are added to the
//                  next gradient's (error feedback)
//   skip:Q         each entry with probability Q, and divided by it: the expectation stays what it was
//   bf16, fp16     rounded to nearest even; finite ones up to +-65504 in fp16
//   fix8, fix16    b bits between the least and the largest entry of the message, m and M: with v = (x - m) / (M - m) *
//                  (2^b - 2), floor(v) and one more with probability v - floor(v), whose expectation is v
//   coin8, coin16  the same with one more on the toss of a fair coin, as published: off by up to half a level in the
//                  mean
//
// Infinite entries and NaN are always sent, and arrive as such or as NaN, so that everybody sees that a run diverges.
//
// Of n entries of which s are sent a message has s values; where filters choose, 8 bytes for s and, if s < n, a bit for
// each of the n or 4 bytes for each of the s, whichever is less; and 8 bytes for m and M (push_message.h).
// Sources: Li et al. 2014, "Communication Efficient Distributed Machine Learning with the Parameter Server", section
// 3.3 (significantly modified, random skip, KKT), and their program (fixing-float); Alistarh et al. 2017, "QSGD"
// (rounding that is right in the mean); Stich et al. 2018, "Sparsified SGD with Memory" (top-k with error feedback).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/core/philox.h"

namespace owt {

struct FilterSettings {
  enum class Value { kF32, kBf16, kFp16, kFix8, kFix16, kCoin8, kCoin16 };

  double significant = 0;  // >= 0; 0: off
  double kkt = 0;          // >= 0; 0: off
  double top = 1;          // (0, 1]; 1: off
  double skip = 1;         // (0, 1], what is kept; 1: off
  Value value = Value::kF32;

  bool any() const { return *this != FilterSettings(); }
  bool chooses() const { return significant > 0 || kkt > 0 || top < 1 || skip < 1; }
  bool holds_back() const { return significant > 0 || top < 1; }
  bool fixes() const;           // values are levels between m and M
  int64_t value_bytes() const;  // of one
  // Of the entries that are sent, as far as the settings say it: what significant and kkt leave out is not known.
  double usual_share() const { return top * skip; }
  // Of a message about `entries` of so many tensors.
  int64_t message_bytes(int64_t entries, int64_t sent, int64_t tensors = 1) const;
  std::string text() const;  // for people; empty: none
  bool operator==(const FilterSettings&) const = default;
};

// Of a list such as {"top:0.01", "fix8"}. Throws Error for a word that is none, and for two of a kind.
FilterSettings filters_from(const std::vector<std::string>& words);

// The values become what arrives; what is left out is 0. `sent` is true for entries that are sent; those that choose
// make it false for more of them.
using Sent = std::vector<bool>;
void keep_significant(std::span<float> values, std::span<float> residual, double threshold, Sent& sent);
void leave_out_at_zero(std::span<float> values, std::span<const float> weights, double least, Sent& sent);
void keep_top(std::span<float> values, std::span<float> residual, double share, Sent& sent);
void skip_at_random(std::span<float> values, double kept, const Philox& random, uint64_t first_draw, Sent& sent);
// Of the values that are sent; where they are fixed. NaN where these are not finite: nobody could send them in so few
// bits, and whoever gets them shall see it.
struct Extremes {
  float least = 0, most = 0;
};
Extremes round_to(std::span<float> values, const Sent& sent, FilterSettings::Value value, const Philox& random,
                  uint64_t first_draw);
// The value of a level, and the level of such a value.
float at_level(uint32_t level, const Extremes& of, FilterSettings::Value value);
uint32_t level_at(float fixed, const Extremes& of, FilterSettings::Value value);

// What the KKT filter looks at: the weights that the gradient is of, and the penalty of each, in units of the gradient;
// 0: there is none.
struct Penalised {
  std::span<const float> weights{};
  double penalty = 0;
};

// What has become of a tensor's gradient.
struct Filtered {
  Sent sent{};
  Extremes extremes{};

  int64_t count() const { return std::count(sent.begin(), sent.end(), true); }
};

// One worker's filters, with what they hold back.
class PushFilter {
 public:
  PushFilter(const FilterSettings& settings, uint64_t seed, int worker)
      : settings_(settings), seed_(seed), worker_(worker) {}

  // Filters a tensor's gradient. tensor: its number, from 0, which says how many entries it has.
  Filtered apply(size_t tensor, std::span<float> gradient, int64_t task, const Penalised& of = {});

 private:
  FilterSettings settings_;
  uint64_t seed_;
  int worker_;
  std::vector<std::vector<float>> residuals_;
};

}  // namespace owt
