#include "src/comm/stuck.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "src/system/check.h"
#include "src/system/texts.h"

namespace owt {
namespace {

bool waits(const Standing& rank) { return rank.waits_for == WaitsFor::kOthers || rank.waits_for == WaitsFor::kData; }

std::string place(const Standing& rank) {
  if (rank.peer >= 0) return rank.name;
  return rank.collective == 0 ? "no collective" : concat(rank.name, " (its collective ", rank.collective, ")");
}

// The first rank that has not left and satisfies `holds`; -1: none.
template <class Holds>
int first(const std::vector<std::optional<Standing>>& standings, const Holds& holds) {
  for (size_t r = 0; r < standings.size(); ++r)
    if (standings[r] && holds(*standings[r])) return static_cast<int>(r);
  return -1;
}

Stuck in_collectives(const std::vector<std::optional<Standing>>& standings, const std::string& seconds) {
  const auto& one = *standings[static_cast<size_t>(first(standings, [](const Standing&) { return true; }))];
  int64_t least = one.collective, most = one.collective;
  for (const auto& rank : standings)
    if (rank) least = std::min(least, rank->collective), most = std::max(most, rank->collective);
  const int slowest = least < most ? first(standings, [&](const Standing& s) { return s.collective == least; })
                                   : first(standings, [&](const Standing& s) { return s.name != one.name; });
  if (slowest < 0) {
    const int any = first(standings, [](const Standing&) { return true; });
    return {any, concat("like all others it has been in ", place(one), " for ", seconds,
                        " and no message moves; look at the network between the hosts")};
  }
  const Standing& its = *standings[static_cast<size_t>(slowest)];
  const int other =
      first(standings, [&](const Standing& s) { return s.collective != its.collective || s.name != its.name; });
  return {slowest, concat("it has been in ", place(its), " for ", seconds, ", while rank ", other, " waits in ",
                          place(*standings[static_cast<size_t>(other)]))};
}

// `rank` is the first that waits for a message. The chain may end in a cycle, at a rank that waits for something else,
// or at a rank that has left.
Stuck in_messages(const std::vector<std::optional<Standing>>& standings, int rank, const std::string& seconds) {
  const auto standing = [&](int r) -> const std::optional<Standing>& { return standings[static_cast<size_t>(r)]; };
  std::set<int> seen;
  int before = rank;
  while (standing(rank) && standing(rank)->peer >= 0 && seen.insert(rank).second) {
    before = rank;
    rank = standing(rank)->peer;
  }
  if (!standing(rank))
    return {before, concat("it has been in ", place(*standing(before)), " for ", seconds, ", but rank ", rank,
                           " has come to its end")};
  return {rank, concat("it has been in ", place(*standing(rank)), " for ", seconds, ", while rank ", before,
                       " waits in ", place(*standing(before)))};
}

}  // namespace

std::string Standing::text() const {
  return packed({std::to_string(static_cast<int>(waits_for)), std::to_string(static_cast<int64_t>(1e3 * still_s)),
                 std::to_string(collective), name, std::to_string(peer)});
}

Standing Standing::from(const std::string& text) {
  const std::vector<std::string> parts = unpacked(text);
  if (parts.size() != 5) fail("a rank's standing has ", parts.size(), " parts, wanted 5");
  const auto number = [&](size_t i) { return std::strtoll(parts[i].c_str(), nullptr, 10); };
  return {static_cast<WaitsFor>(std::clamp<int64_t>(number(0), 0, static_cast<int>(WaitsFor::kDevice))),
          static_cast<double>(number(1)) / 1e3, number(2), parts[3], static_cast<int>(number(4))};
}

std::optional<Stuck> find_stuck(const std::vector<std::optional<Standing>>& standings, double timeout_s,
                                double stall_s) {
  const auto moves = [&](const Standing& rank) { return rank.still_s < (waits(rank) ? timeout_s : stall_s); };
  const auto works = [](const Standing& rank) { return rank.waits_for == WaitsFor::kNothing; };
  if (first(standings, moves) >= 0 || first(standings, [&](const Standing& s) { return !works(s); }) < 0) return {};
  const auto seconds = [&](int rank) {
    return concat(std::floor(standings[static_cast<size_t>(rank)]->still_s), " s");
  };
  if (const int rank = first(standings, [](const Standing& s) { return s.waits_for == WaitsFor::kData; }); rank >= 0)
    return Stuck{rank, concat("it has waited for data for ", seconds(rank),
                              " and read nothing; look at its disk or file system")};
  if (const int rank = first(standings, works); rank >= 0)
    return Stuck{rank, concat("it has shown no sign of work for ", seconds(rank), ", longer than parallel.stall_s")};
  if (const int rank = first(standings, [](const Standing& s) { return s.waits_for == WaitsFor::kDevice; }); rank >= 0)
    return Stuck{rank, concat("it has waited for its GPU for ", seconds(rank), ", longer than parallel.stall_s")};
  if (const int rank = first(standings, [](const Standing& s) { return s.peer >= 0; }); rank >= 0)
    return in_messages(standings, rank, seconds(rank));
  return in_collectives(standings, seconds(first(standings, [](const Standing&) { return true; })));
}

}  // namespace owt
