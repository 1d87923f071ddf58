#include "src/parallel/rounds.h"

#include "src/core/check.h"
#include "src/core/config.h"

namespace owt {

const char* name_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::kDataParallel:
      return "dp";
    case Strategy::kOwtA:
      return "owt-a";
    case Strategy::kOwtB:
      return "owt-b";
    case Strategy::kOwtC:
      return "owt-c";
    case Strategy::kModelParallel:
      return "mp";
  }
  return "";
}

std::vector<std::string> strategy_names() { return {"dp", "owt-a", "owt-b", "owt-c", "mp"}; }

Strategy strategy_from(const std::string& name) {
  for (const Strategy strategy :
       {Strategy::kDataParallel, Strategy::kOwtA, Strategy::kOwtB, Strategy::kOwtC, Strategy::kModelParallel})
    if (name == name_of(strategy)) return strategy;
  const std::string near = nearest(name, strategy_names());
  fail("no strategy '", name, "' (there are dp, owt-a, owt-b, owt-c, mp)",
       near.empty() ? "" : concat("; did you mean '", near, "'?"));
}

int64_t rows_of(const Round& round) {
  int64_t rows = 0;
  for (const RowRange& range : round) rows += range.size();
  return rows;
}

StepRows::StepRows(Strategy strategy, int ranks, int64_t step_rows)
    : strategy_(strategy), ranks_(ranks), total_(step_rows) {
  OWT_CHECK(ranks >= 1 && step_rows >= 0);
}

Slice StepRows::of(int rank) const {
  return strategy_ == Strategy::kModelParallel ? Slice{0, total_} : split(total_, ranks_, rank);
}

int64_t StepRows::most() const { return of(0).size(); }  // split() gives the first ranks the most

std::vector<Round> StepRows::rounds(int rank) const {
  std::vector<Round> all;
  switch (strategy_) {
    case Strategy::kDataParallel:
    case Strategy::kModelParallel:
      all.push_back({{rank, 0, of(rank).size()}});
      break;
    case Strategy::kOwtA:
      all.emplace_back();
      for (int r = 0; r < ranks_; ++r) all.back().push_back({r, 0, of(r).size()});
      break;
    case Strategy::kOwtB:
      for (int r = 0; r < ranks_; ++r) all.push_back({{r, 0, of(r).size()}});
      break;
    case Strategy::kOwtC:
      for (int round = 0; round < ranks_; ++round) {
        all.emplace_back();
        for (int r = 0; r < ranks_; ++r) {
          const Slice part = split(of(r).size(), ranks_, round);
          all.back().push_back({r, part.begin, part.end});
        }
      }
      break;
  }
  return all;
}

}  // namespace owt
