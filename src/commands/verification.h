// How well the similarity of two images shows whether they are of the same person, or the same thing of another kind.
//
// A pair is accepted at a threshold if its similarity is not below it. FAR is the share of different pairs that are
// accepted, TAR the share of same pairs. A threshold of kAcceptsNone accepts no pair, kAcceptsAll every pair.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/files/verification_record.h"

namespace owt {

struct ScoredPair {
  double similarity = 0;  // [-1, 1]
  bool same = false;
};

constexpr double kAcceptsNone = 2, kAcceptsAll = -1;
constexpr int kFolds = 10;
constexpr int kPointsPerDecade = 30;

struct FoldAccuracy {
  double threshold = 0;  // the most accurate one of the other folds; of equally accurate ones the highest
  double accuracy = 0;   // share of the fold's pairs that it accepts or refuses rightly
};

// The accuracies of consecutive folds whose sizes differ by one at most, in the order of the pairs, as for LFW (Huang
// et al. 2007). A threshold lies midway between two similarities. Throws Error for fewer than kFolds pairs.
std::vector<FoldAccuracy> fold_accuracies(std::span<const ScoredPair> pairs);

struct RocPoint {
  double threshold = kAcceptsNone;  // the lowest similarity of an accepted pair
  int64_t same = 0, different = 0;  // accepted pairs
};

// The receiver operating characteristic: accepted pairs as the threshold falls, from (0, 0). Points between two others
// on a horizontal or vertical line are left out.
struct Roc {
  std::vector<RocPoint> points{};
  int64_t same = 0, different = 0;  // all pairs, of both at least one

  double tar(const RocPoint& at) const { return static_cast<double>(at.same) / static_cast<double>(same); }
  double far(const RocPoint& at) const { return static_cast<double>(at.different) / static_cast<double>(different); }
  // The point with the highest TAR whose FAR is `most` or lower.
  const RocPoint& at_far(double most) const;
  // For a drawing with a logarithmic axis of FARs: at_far() at kPointsPerDecade FARs in each power of ten, from one
  // accepted different pair to all of them.
  std::vector<AcceptRates> curve() const;
  double area() const;  // under the curve: the probability that a same pair is more similar, ties count half
  double equal_error_rate() const;  // where FAR = 1 - TAR, between two points on their line
};

// Throws Error if all pairs are of one kind.
Roc roc_of(std::span<const ScoredPair> pairs);

}  // namespace owt
