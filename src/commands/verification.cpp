#include "src/commands/verification.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "src/core/shape.h"
#include "src/system/check.h"

namespace owt {
namespace {

// The indices of the pairs, the most similar first.
std::vector<size_t> by_similarity(std::span<const ScoredPair> pairs) {
  std::vector<size_t> order(pairs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, std::greater(), [&](size_t i) { return pairs[i].similarity; });
  return order;
}

// The most accurate threshold for the pairs outside `fold`.
double best_threshold(std::span<const ScoredPair> pairs, std::span<const size_t> order, const Slice& fold) {
  const auto within = [&](size_t i) {
    return static_cast<int64_t>(i) >= fold.begin && static_cast<int64_t>(i) < fold.end;
  };
  double best = kAcceptsNone, last = kAcceptsNone;
  int64_t gained = 0, most = 0;  // right decisions more than without any accepted pair
  for (const size_t i : order) {
    if (within(i)) continue;
    const double next = pairs[i].similarity;
    if (next < last && gained > most) most = gained, best = (last + next) / 2;
    gained += pairs[i].same ? 1 : -1;
    last = next;
  }
  return gained > most ? kAcceptsAll : best;
}

double share_right(std::span<const ScoredPair> pairs, double threshold) {
  const auto right =
      std::ranges::count_if(pairs, [&](const ScoredPair& pair) { return (pair.similarity >= threshold) == pair.same; });
  return static_cast<double>(right) / static_cast<double>(pairs.size());
}

}  // namespace

std::vector<FoldAccuracy> fold_accuracies(std::span<const ScoredPair> pairs) {
  if (std::ssize(pairs) < kFolds) fail("there are ", pairs.size(), " pairs; ", kFolds, " folds need as many at least");
  const std::vector<size_t> order = by_similarity(pairs);
  std::vector<FoldAccuracy> all;
  for (int k = 0; k < kFolds; ++k) {
    const Slice fold = split(std::ssize(pairs), kFolds, k);
    const double threshold = best_threshold(pairs, order, fold);
    all.push_back({threshold, share_right(pairs.subspan(fold.begin, fold.size()), threshold)});
  }
  return all;
}

Roc roc_of(std::span<const ScoredPair> pairs) {
  Roc roc;
  for (const ScoredPair& pair : pairs) ++(pair.same ? roc.same : roc.different);
  if (roc.same == 0 || roc.different == 0)
    fail("all ", pairs.size(), " pairs are ", roc.same == 0 ? "different" : "the same", "; both kinds are needed");
  const std::vector<size_t> order = by_similarity(pairs);
  std::vector<RocPoint>& points = roc.points;
  points.emplace_back();
  const auto straight = [](const RocPoint& a, const RocPoint& b, const RocPoint& c) {
    return (a.same == b.same && b.same == c.same) || (a.different == b.different && b.different == c.different);
  };
  RocPoint now;
  for (size_t i = 0; i < order.size(); ++i) {
    const ScoredPair& pair = pairs[order[i]];
    ++(pair.same ? now.same : now.different);
    now.threshold = pair.similarity;
    if (i + 1 < order.size() && pairs[order[i + 1]].similarity == pair.similarity) continue;
    if (points.size() > 1 && straight(points[points.size() - 2], points.back(), now)) points.pop_back();
    points.push_back(now);
  }
  return roc;
}

const RocPoint& Roc::at_far(double most) const {
  // A product such as 0.001 * 3000 may be rounded to just below a whole number.
  const double allowed = most * static_cast<double>(different) * (1 + 1e-9);
  const auto beyond = std::ranges::partition_point(
      points, [&](const RocPoint& point) { return static_cast<double>(point.different) <= allowed; });
  const auto highest = beyond - 1;  // the first point accepts nothing
  return *std::ranges::lower_bound(points.begin(), beyond, highest->same, {}, &RocPoint::same);
}

std::vector<AcceptRates> Roc::curve() const {
  const double decades = std::log10(static_cast<double>(different));
  std::vector<AcceptRates> rates;
  const auto last = static_cast<int>(std::ceil(kPointsPerDecade * decades));
  for (int i = 0; i <= last; ++i) {
    const double far = i == last ? 1 : std::pow(10, static_cast<double>(i) / kPointsPerDecade - decades);
    rates.push_back({far, tar(at_far(far))});
  }
  return rates;
}

double Roc::area() const {
  double twice = 0;
  for (size_t i = 1; i < points.size(); ++i)
    twice += (far(points[i]) - far(points[i - 1])) * (tar(points[i]) + tar(points[i - 1]));
  return twice / 2;
}

double Roc::equal_error_rate() const {
  const auto excess = [&](const RocPoint& at) { return far(at) - (1 - tar(at)); };  // rises from -1 to 1
  size_t i = 1;
  while (excess(points[i]) < 0) ++i;
  const double before = excess(points[i - 1]), after = excess(points[i]);
  return std::lerp(far(points[i - 1]), far(points[i]), before / (before - after));
}

}  // namespace owt
