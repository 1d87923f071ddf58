#include "src/plan/rounds.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "src/core/row_groups.h"
#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

// The exact quotas, as if rows could be divided. Shares are scaled down first, since their sum might overflow.
std::vector<double> quotas(int64_t total, const std::vector<double>& shares) {
  const double largest = *std::max_element(shares.begin(), shares.end());
  std::vector<double> all;
  for (const double share : shares) {
    OWT_CHECK(share >= 0 && largest > 0 && std::isfinite(share), "a share of ", share);
    all.push_back(share / largest);
  }
  const double sum = std::accumulate(all.begin(), all.end(), 0.0);
  for (double& quota : all) quota = static_cast<double>(total) * quota / sum;
  return all;
}

// The smallest share of each group of `members` ranks.
std::vector<double> least_of_groups(const std::vector<double>& shares, int members) {
  std::vector<double> least;
  for (auto group = shares.begin(); group != shares.end(); group += members)
    least.push_back(*std::min_element(group, group + members));
  return least;
}

}  // namespace

std::vector<int64_t> ends_of_parts(int64_t total, const std::vector<double>& shares) {
  const std::vector<double> quota = quotas(total, shares);
  std::vector<int64_t> parts;
  for (const double each : quota) parts.push_back(static_cast<int64_t>(each));
  const int64_t left = total - std::accumulate(parts.begin(), parts.end(), int64_t{0});
  OWT_CHECK(left >= 0 && left <= std::ssize(parts), left, " of ", total, " rows are left over");
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return quota[a] - static_cast<double>(parts[a]) > quota[b] - static_cast<double>(parts[b]);
  });
  for (int64_t i = 0; i < left; ++i) ++parts[order[static_cast<size_t>(i)]];
  std::partial_sum(parts.begin(), parts.end(), parts.begin());
  return parts;
}

int64_t rows_of(const Round& round) {
  int64_t rows = 0;
  for (const RowRange& range : round) rows += range.size();
  return rows;
}

StepRows::StepRows(Strategy strategy, int ranks, int64_t step_rows, int model_ranks, const std::vector<double>& shares,
                   int equal_parts, int slices, int64_t row_group, int64_t round_group)
    : rounds_(facts_of(strategy).rounds),
      shared_rows_(facts_of(strategy).shares_rows),
      ranks_(ranks),
      model_ranks_(model_ranks > 0 ? model_ranks : ranks),
      equal_parts_(equal_parts),
      slices_(slices),
      end_slice_(slices),
      total_(step_rows),
      row_group_(row_group),
      round_group_(round_group) {
  OWT_CHECK(ranks >= 1 && step_rows >= 0 && ranks % model_ranks_ == 0 && slices >= 1 && row_group % round_group == 0);
  if (shares.empty() && (row_group == 1 || total_ % (row_group * parts()) == 0)) return;
  std::vector<double> of_parts(static_cast<size_t>(parts()), 1.0);
  if (!shares.empty()) {
    OWT_CHECK_EQ(std::ssize(shares), ranks);
    of_parts = shared_rows_ ? least_of_groups(shares, model_ranks_) : shares;
  }
  const RowGroups groups{total_, row_group};
  for (const int64_t end : ends_of_parts(groups.count(), of_parts)) ends_.push_back(groups.of({0, end}).end);
}

StepRows StepRows::slice(int number) const {
  OWT_CHECK(number >= 0 && number < slices());
  StepRows one = *this;
  one.first_slice_ += number;
  one.end_slice_ = one.first_slice_ + 1;
  return one;
}

int StepRows::first_alike(int slice, int rank) const {
  const int first = first_of_group(rank);
  const auto alike = [&](int other) {
    for (int member = first; member < first + model_ranks_; ++member)
      if (in_slice(member, other).size() != in_slice(member, slice).size()) return false;
    return true;
  };
  int found = 0;
  while (!alike(found)) ++found;
  return found;
}

Slice StepRows::in_slice(int rank, int number) const {
  return RowGroups{in_all_slices(rank).size(), row_group_}.part(slices_, first_slice_ + number);
}

Slice StepRows::of(int rank) const {
  const int64_t first = in_all_slices(rank).begin;
  return {first + in_slice(rank, 0).begin, first + in_slice(rank, slices() - 1).end};
}

Slice StepRows::in_all_slices(int rank) const {
  if (ends_.empty()) return split(total_, parts(), part_of(rank));
  const auto part = static_cast<size_t>(part_of(rank));
  return {part == 0 ? 0 : ends_[part - 1], ends_[part]};
}

int64_t StepRows::most() const {
  int64_t most = of(0).size();  // split() gives the first ranks the most
  for (int rank = 1; !ends_.empty() && rank < ranks_; ++rank) most = std::max(most, of(rank).size());
  return most;
}

int64_t StepRows::most_beside(int rank) const {
  const int first = first_of_group(rank);
  int64_t most = of(first).size();
  for (int i = 1; !ends_.empty() && i < model_ranks_; ++i) most = std::max(most, of(first + i).size());
  return most;
}

int StepRows::busiest_group() const {
  int busiest = 0;
  int64_t most = 0;
  for (int first = 0; !ends_.empty() && first < ranks_; first += model_ranks_) {
    const int64_t rows = of(first + model_ranks_ - 1).end - of(first).begin;
    if (rows > most) most = rows, busiest = first;
  }
  return busiest;
}

bool StepRows::alike() const { return most() == of(0).size(); }

int64_t StepRows::least(int ranks) const {
  int64_t least = total_;
  for (int rank = 0; rank < ranks; ++rank) least = std::min(least, of(rank).size());
  return least;
}

std::string StepRows::text() const {
  constexpr int kFew = 8;
  const int64_t least = this->least(ranks_);
  if (least == most()) return std::to_string(most());
  if (parts() > kFew) return format("{} to {}", least, most());
  std::string text;
  for (int rank = 0; rank < ranks_; rank += ranks_ / parts()) text += concat(rank > 0 ? " + " : "", of(rank).size());
  return text;
}

std::vector<Round> StepRows::rounds(int rank) const {
  std::vector<Round> all;
  for (int slice = 0; slice < slices(); ++slice) add_rounds_of(slice, rank, all);
  return all;
}

int StepRows::count_rounds() const {
  switch (rounds_) {
    case Rounds::kOwnRows:
    case Rounds::kAllRows:
      return slices();
    case Rounds::kOneRanks:
    case Rounds::kAPartOfEach:
      return slices() * model_ranks_;
    case Rounds::kEqualParts:
      return slices() * equal_parts_;
  }
  fail("no such rounds");
}

void StepRows::add_rounds_of(int slice, int rank, std::vector<Round>& all) const {
  const int mine = rank % model_ranks_;
  // Part `index` of `parts` of a rank's rows in the micro-batch.
  const auto part = [&](int member, int parts = 1, int index = 0) {
    const int of = first_of_group(rank) + member;
    const Slice rows = in_slice(of, slice), cut = RowGroups{rows.size(), round_group_}.part(parts, index);
    const int64_t first = rows.begin - in_slice(of, 0).begin;
    return RowRange{member, first + cut.begin, first + cut.end};
  };
  switch (rounds_) {
    case Rounds::kOwnRows:
      all.push_back({part(mine)});
      break;
    case Rounds::kAllRows:
      all.emplace_back();
      for (int r = 0; r < model_ranks_; ++r) all.back().push_back(part(r));
      break;
    case Rounds::kOneRanks:
      for (int r = 0; r < model_ranks_; ++r) all.push_back({part(r)});
      break;
    case Rounds::kAPartOfEach:
      for (int round = 0; round < model_ranks_; ++round) {
        all.emplace_back();
        for (int r = 0; r < model_ranks_; ++r) all.back().push_back(part(r, model_ranks_, round));
      }
      break;
    case Rounds::kEqualParts:
      for (int index = 0; index < equal_parts_; ++index) all.push_back({part(mine, equal_parts_, index)});
      break;
  }
}

std::vector<StepRows::RoundSize> StepRows::round_sizes(int rank) const {
  std::vector<RoundSize> all;
  if (rounds_ != Rounds::kAPartOfEach) {
    for (const Round& round : rounds(rank)) {
      all.push_back({rows_of(round), 0});
      for (const RowRange& range : round) all.back().longest = std::max(all.back().longest, range.size());
    }
    return all;
  }
  for (int slice = 0; slice < slices(); ++slice) {
    // Rows of a rank -> number of ranks that have them; at most two keys if shares are equal
    std::map<int64_t, int64_t> members;
    for (int r = 0; r < model_ranks_; ++r) ++members[in_slice(first_of_group(rank) + r, slice).size()];
    for (int round = 0; round < model_ranks_; ++round) {
      all.push_back({0, 0});
      for (const auto& [rows, ranks] : members) {
        const int64_t part = RowGroups{rows, round_group_}.part(model_ranks_, round).size();
        all.back().rows += ranks * part;
        all.back().longest = std::max(all.back().longest, part);
      }
    }
  }
  return all;
}

std::vector<int64_t> StepRows::indexes(const Round& round, int rank) const {
  std::vector<int64_t> all;
  for (const RowRange& range : round) {
    const int64_t first = of(first_of_group(rank) + range.rank).begin;
    for (int64_t row = range.begin; row < range.end; ++row) all.push_back(first + row);
  }
  return all;
}

}  // namespace owt
