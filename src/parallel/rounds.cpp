#include "src/parallel/rounds.h"

#include <algorithm>
#include <map>

#include "src/core/check.h"
#include "src/core/config.h"

namespace owt {

const char* name_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::kDataParallel:
      return "dp";
    case Strategy::kDataParallelZero:
      return "dp-zero";
    case Strategy::kOwtA:
      return "owt-a";
    case Strategy::kOwtB:
      return "owt-b";
    case Strategy::kOwtC:
      return "owt-c";
    case Strategy::kOwtD:
      return "owt-d";
    case Strategy::kModelParallel:
      return "mp";
  }
  return "";
}

bool splits_dense(Strategy strategy) {
  switch (strategy) {
    case Strategy::kOwtA:
    case Strategy::kOwtB:
    case Strategy::kOwtC:
    case Strategy::kOwtD:
    case Strategy::kModelParallel:
      return true;
    default:
      return false;
  }
}

std::vector<Strategy> all_strategies() {
  return {Strategy::kDataParallel, Strategy::kDataParallelZero, Strategy::kOwtA, Strategy::kOwtB, Strategy::kOwtC,
          Strategy::kOwtD,         Strategy::kModelParallel};
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Strategy strategy : all_strategies()) names.push_back(name_of(strategy));
  return names;
}

Strategy strategy_from(const std::string& name) {
  std::string known;
  for (const Strategy strategy : all_strategies()) {
    if (name == name_of(strategy)) return strategy;
    known += concat(known.empty() ? "" : ", ", name_of(strategy));
  }
  const std::string near = nearest(name, strategy_names());
  fail("no strategy '", name, "' (there are ", known, ")", near.empty() ? "" : concat("; did you mean '", near, "'?"));
}

int64_t rows_of(const Round& round) {
  int64_t rows = 0;
  for (const RowRange& range : round) rows += range.size();
  return rows;
}

StepRows::StepRows(Strategy strategy, int ranks, int64_t step_rows, int model_ranks)
    : strategy_(strategy), ranks_(ranks), model_ranks_(model_ranks > 0 ? model_ranks : ranks), total_(step_rows) {
  OWT_CHECK(ranks >= 1 && step_rows >= 0 && ranks % model_ranks_ == 0);
}

Slice StepRows::of(int rank) const {
  if (strategy_ != Strategy::kModelParallel) return split(total_, ranks_, rank);
  return split(total_, ranks_ / model_ranks_, rank / model_ranks_);
}

int64_t StepRows::most() const { return of(0).size(); }  // split() gives the first ranks the most

std::vector<Round> StepRows::rounds(int rank) const {
  std::vector<Round> all;
  const auto size_of = [&](int member) { return of(first_of_group(rank) + member).size(); };
  switch (strategy_) {
    case Strategy::kDataParallel:
    case Strategy::kDataParallelZero:
    case Strategy::kModelParallel:
      all.push_back({{rank % model_ranks_, 0, of(rank).size()}});
      break;
    case Strategy::kOwtA:
    case Strategy::kOwtD:
      all.emplace_back();
      for (int r = 0; r < model_ranks_; ++r) all.back().push_back({r, 0, size_of(r)});
      break;
    case Strategy::kOwtB:
      for (int r = 0; r < model_ranks_; ++r) all.push_back({{r, 0, size_of(r)}});
      break;
    case Strategy::kOwtC:
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
  if (strategy_ != Strategy::kOwtC) {
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
