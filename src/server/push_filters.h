// Filters that drop entries of a gradient, or round values, before a worker pushes it, so that fewer bytes travel. A
// gradient is filtered tensor by tensor. Filters stack: first the filters that choose entries, then the value type.
//
//   significant:T  entries not above T times the root of the tensor's mean square stay here, and are added to the next
//                  gradient
//   kkt:T          drops entries whose weight is 0 and which are not above T times the penalty's share of the push;
//                  with T <= 1 such an entry alone could not move the weight
//   top:P          sends the fraction P of a tensor's entries that are largest, at least one; the others are added to
//                  the next gradient (error feedback)
//   skip:Q         sends each entry with probability Q, divided by Q, which keeps the expectation
//   bf16, fp16     rounded to nearest even; finite values are limited to +-65504 in fp16
//   fix8, fix16    b bits between the least and the largest entry of the message, m and M: with v = (x - m) / (M - m) *
//                  (2^b - 2), floor(v) and one more with probability v - floor(v), whose expectation is v
//   coin8, coin16  the same, but one more with probability 1/2, as published: biased by up to half a level
//
// Infinite entries and NaN are always sent. They arrive as such or as NaN, so that divergence is visible on every rank.
//
// If s of n entries are sent, a message has s values. If filters choose entries, it also has 8 bytes for s and, if s <
// n, a bit for each of the n or 4 bytes for each of the s, whichever is less. Fixed-point values add 8 bytes for m and
// M per tensor (push_message.h).
// Sources: Li et al. 2014, "Communication Efficient Distributed Machine Learning with the Parameter Server", section
// 3.3 (significantly modified, random skip, KKT), and their program (fixing-float); Alistarh et al. 2017, "QSGD"
// (unbiased rounding); Stich et al. 2018, "Sparsified SGD with Memory" (top-k with error feedback).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/core/philox.h"
#include "src/plan/filter_settings.h"

namespace owt {

// The filters replace the values by what arrives; an entry that is not sent becomes 0. `sent` is true for the entries
// that are sent; filters that choose entries set more of them to false.
using Sent = std::vector<bool>;
void keep_significant(std::span<float> values, std::span<float> residual, double threshold, Sent& sent);
void leave_out_at_zero(std::span<float> values, std::span<const float> weights, double least, Sent& sent);
void keep_top(std::span<float> values, std::span<float> residual, double share, Sent& sent);
void skip_at_random(std::span<float> values, double kept, const Philox& random, uint64_t first_draw, Sent& sent);
// The smallest and largest value that is sent, for fixed-point types. NaN if a value is not finite: fixed-point values
// cannot represent it, and the receiver must see it.
struct Extremes {
  float least = 0, most = 0;
};
Extremes round_to(std::span<float> values, const Sent& sent, FilterSettings::Value value, const Philox& random,
                  uint64_t first_draw);
// Converts a level to its value, and such a value back to its level.
float at_level(uint32_t level, const Extremes& of, FilterSettings::Value value);
uint32_t level_at(float fixed, const Extremes& of, FilterSettings::Value value);

// The KKT filter's input: the weights that the gradient belongs to, and the penalty of each, in units of the gradient.
// 0: no penalty.
struct Penalised {
  std::span<const float> weights{};
  double penalty = 0;
};

// The result of filtering a tensor's gradient.
struct Filtered {
  Sent sent{};
  Extremes extremes{};

  int64_t count() const { return std::count(sent.begin(), sent.end(), true); }
};

// One worker's filters, with their residuals.
class PushFilter {
 public:
  PushFilter(const FilterSettings& settings, uint64_t seed, int worker)
      : settings_(settings), seed_(seed), worker_(worker) {}

  // Filters a tensor's gradient. tensor: its number, from 0, which determines its number of entries.
  Filtered apply(size_t tensor, std::span<float> gradient, int64_t task, const Penalised& of = {});

 private:
  FilterSettings settings_;
  uint64_t seed_;
  int worker_;
  std::vector<std::vector<float>> residuals_;
};

}  // namespace owt
