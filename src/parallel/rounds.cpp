#include "src/parallel/rounds.h"

#include <algorithm>
#include <map>

#include "src/core/check.h"

namespace owt {

int64_t rows_of(const Round& round) {
  int64_t rows = 0;
  for (const RowRange& range : round) rows += range.size();
  return rows;
}

StepRows::StepRows(Strategy strategy, int ranks, int64_t step_rows, int model_ranks)
    : rounds_(facts_of(strategy).rounds),
      shared_rows_(facts_of(strategy).shares_rows),
      ranks_(ranks),
      model_ranks_(model_ranks > 0 ? model_ranks : ranks),
      total_(step_rows) {
  OWT_CHECK(ranks >= 1 && step_rows >= 0 && ranks % model_ranks_ == 0);
}

Slice StepRows::of(int rank) const {
  if (!shared_rows_) return split(total_, ranks_, rank);
  return split(total_, ranks_ / model_ranks_, rank / model_ranks_);
}

int64_t StepRows::most() const { return of(0).size(); }  // split() gives the first ranks the most

std::vector<Round> StepRows::rounds(int rank) const {
  std::vector<Round> all;
  const auto size_of = [&](int member) { return of(first_of_group(rank) + member).size(); };
  switch (rounds_) {
    case Rounds::kOwnRows:
      all.push_back({{rank % model_ranks_, 0, of(rank).size()}});
      break;
    case Rounds::kAllRows:
      all.emplace_back();
      for (int r = 0; r < model_ranks_; ++r) all.back().push_back({r, 0, size_of(r)});
      break;
    case Rounds::kOneRanks:
      for (int r = 0; r < model_ranks_; ++r) all.push_back({{r, 0, size_of(r)}});
      break;
    case Rounds::kAPartOfEach:
      for (int round = 0; round < model_ranks_; ++round) {
        all.emplace_back();
        for (int r = 0; r < model_ranks_; ++r) {
          const Slice part = split(size_of(r), model_ranks_, round);
          all.back().push_back({r, part.begin, part.end});
        }
      }
      break;
  }
  return all;
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
  std::map<int64_t, int64_t> members;  // rows of a rank -> ranks that have as many; there are two such numbers at most
  for (int r = 0; r < model_ranks_; ++r) ++members[of(first_of_group(rank) + r).size()];
  for (int round = 0; round < model_ranks_; ++round) {
    all.push_back({0, 0});
    for (const auto& [rows, ranks] : members) {
      const int64_t part = split(rows, model_ranks_, round).size();
      all.back().rows += ranks * part;
      all.back().longest = std::max(all.back().longest, part);
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
