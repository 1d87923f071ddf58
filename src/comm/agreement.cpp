#include "src/comm/agreement.h"

#include <algorithm>

#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/texts.h"

namespace owt {
namespace {

std::string text_of(const Facts& all) {
  std::vector<std::string> texts{all.host};
  for (const Fact& fact : all.facts) texts.insert(texts.end(), {fact.what, fact.value, fact.cure, fact.where});
  return packed(texts);
}

Facts facts_in(const std::string& text) {
  const std::vector<std::string> texts = unpacked(text);
  Facts all{texts.at(0), {}};
  for (size_t i = 1; i + 3 < texts.size(); i += 4)
    all.facts.push_back({texts[i], texts[i + 1], texts[i + 2], texts[i + 3]});
  return all;
}

// The part of two differing values that an error shows: the first lines that differ.
struct DifferingLines {
  std::string mine, other;
};
DifferingLines shown(const std::string& mine, const std::string& other) {
  const auto lines = split_lines(mine), others = split_lines(other);
  if (lines.size() <= 1 && others.size() <= 1) return {mine, other};
  size_t i = 0;
  while (i < lines.size() && i < others.size() && lines[i] == others[i]) ++i;
  const auto line = [i](const std::vector<std::string>& all) {
    return i < all.size() ? concat("the line '", all[i], "'") : "no more lines";
  };
  return {line(lines), line(others)};
}

std::string who(size_t rank, const std::vector<Facts>& by_rank) {
  return concat("rank ", rank, " on ", by_rank[rank].host, " has ");
}

// A blank and the place of the fact; empty if the place is not stated.
std::string place(const Fact& fact) { return fact.where.empty() ? "" : " " + fact.where; }

}  // namespace

std::optional<std::string> first_difference(const std::vector<Facts>& by_rank) {
  const std::vector<Fact>& wanted = by_rank.front().facts;
  for (size_t i = 0; i < wanted.size(); ++i)
    for (size_t rank = 1; rank < by_rank.size(); ++rank) {
      const Fact& fact = i < by_rank[rank].facts.size() ? by_rank[rank].facts[i] : Fact{};
      if (fact.what == wanted[i].what && fact.value == wanted[i].value) continue;
      if (fact.what != wanted[i].what)
        return concat(who(rank, by_rank), "nothing to say of: ", wanted[i].what, "; start the same command everywhere");
      const DifferingLines values = shown(fact.value, wanted[i].value);
      return concat(fact.what, ": ", who(rank, by_rank), values.mine, place(fact), ", ", who(0, by_rank), values.other,
                    place(wanted[i]), "; ", fact.cure);
    }
  return {};
}

void check_alike(const std::vector<Fact>& mine) {
  if (!launch().several()) return;
  std::vector<Facts> by_rank;
  for (const std::string& text : from_every_rank(text_of({host_name(), mine}))) by_rank.push_back(facts_in(text));
  const auto difference = first_difference(by_rank);
  if (!difference) return;
  if (!launch().changes()) throw Error(*difference);
  // Where workers join, only a worker that differs from rank 0 ends.
  for (size_t rank = 1; rank < by_rank.size(); ++rank) {
    std::vector<Facts> one(by_rank.size(), by_rank.front());
    one[rank] = by_rank[rank];
    const auto its = first_difference(one);
    if (!its) continue;
    if (static_cast<int>(rank) == launch().rank) throw Error(*its);
    lose_rank(static_cast<int>(rank), *its);
  }
}

}  // namespace owt
