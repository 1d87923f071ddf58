#include "src/parallel/shared_choices.h"

#include <set>

#include "layers/conv_cpu/conv_algorithm.h"
#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/system/plan_cache.h"
#include "src/system/texts.h"

namespace owt {
namespace {

using Table = std::map<std::string, std::string>;

std::string text_of(const Table& table) {
  std::vector<std::string> texts;
  for (const auto& [key, value] : table) texts.insert(texts.end(), {key, value});
  return packed(texts);
}

Table table_of(const std::string& text) {
  Table table;
  const std::vector<std::string> texts = unpacked(text);
  for (size_t i = 0; i + 1 < texts.size(); i += 2) table[texts[i]] = texts[i + 1];
  return table;
}

std::string choices_here() {
  return packed({text_of(ConvChoices::process().exported()), text_of(PlanCache::process().known())});
}

void take(const std::string& choices) {
  const std::vector<std::string> tables = unpacked(choices);
  if (launch().rank != 0) ConvChoices::process().follow(table_of(tables.at(0)));
  for (const auto& [key, text] : table_of(tables.at(1))) PlanCache::process().store_for_this_process(key, text);
}

}  // namespace

void bind_alike(const std::function<void()>& bind, const std::vector<int>& more) {
  if (!launch().several()) return bind();
  std::set<int> choosers(more.begin(), more.end());
  const ProcessPlace here = process_place();
  choosers.insert({0, here.ranks - 1});
  for (const int chooser : choosers) {
    const auto choose = [&] {
      bind();
      return choices_here();
    };
    const std::string chosen = from_rank(chooser, choose);
    if (here.rank != chooser) take(chosen);
  }
  bind();
}

}  // namespace owt
