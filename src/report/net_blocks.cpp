#include "src/report/net_blocks.h"

#include <algorithm>

namespace owt::drawing {
namespace {

bool has_matrix(const LayerPlan& at) {
  return std::any_of(at.params.begin(), at.params.end(), [](const Shape& shape) { return shape.rank() > 1; });
}

bool shares_box(const Block& block, const LayerPlan& next) {
  const LayerPlan& last = *block.lines.back();
  const bool moved = last.transfers.output != kNoTransfer || next.transfers.input != kNoTransfer;
  return block.branches.empty() && next.inner.empty() && next.in == next.out && !has_matrix(next) && !moved &&
         last.place == next.place && last.layout == next.layout;
}

bool is_same_again(const LayerPlan& a, const LayerPlan& b) {
  return a.type == b.type && a.in == b.in && a.out == b.out && a.params == b.params && a.roles == b.roles &&
         a.place == b.place && a.layout == b.layout && a.begins_branch == b.begins_branch &&
         std::equal(a.inner.begin(), a.inner.end(), b.inner.begin(), b.inner.end(), is_same_again);
}

// Branches that pass their input on have no layers. They are inferred from the columns missing in the output.
Block composite(const LayerPlan& at) {
  Block block{{&at}};
  int64_t missing = at.columns_out();
  bool alike = true;
  for (size_t begin = 0, end; begin < at.inner.size(); begin = end) {
    end = begin + 1;
    while (end < at.inner.size() && !at.inner[end].begins_branch) ++end;
    alike = alike && at.inner[end - 1].out == at.out;
    missing -= at.inner[end - 1].columns_out();
    block.branches.push_back(blocks_of(std::span(at.inner).subspan(begin, end - begin), nullptr));
  }
  block.joint = at.type == "scale" ? Joint::kProduct : alike ? Joint::kSum : Joint::kSideBySide;
  if (block.joint != Joint::kSideBySide) missing = block.branches.size() == 1 ? at.in[at.in.rank() - 1] : 0;
  for (; missing > 0; missing -= at.in[at.in.rank() - 1]) block.branches.emplace_back();
  return block;
}

}  // namespace

std::vector<Block> blocks_of(std::span<const LayerPlan> layers, const LayerPlan* cut) {
  std::vector<Block> blocks;
  for (const LayerPlan& at : layers) {
    const bool goes_on = !blocks.empty() && &at != cut;
    if (goes_on && shares_box(blocks.back(), at))
      blocks.back().lines.push_back(&at);
    else if (goes_on && !at.inner.empty() && is_same_again(blocks.back().at(), at))
      blocks.back().again.push_back(at.name);
    else
      blocks.push_back(at.inner.empty() ? Block{{&at}} : composite(at));
  }
  return blocks;
}

}  // namespace owt::drawing
