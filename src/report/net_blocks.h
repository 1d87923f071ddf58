// The boxes of a network's drawing (draw_net.h).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "src/plan/plan.h"

namespace owt::drawing {

// How the outputs of branches become one.
enum class Joint { kSum, kSideBySide, kProduct };

// A box of the drawing: a layer with the following layers that keep its output's shape, or a composite layer.
struct Block {
  std::vector<const LayerPlan*> lines;
  std::vector<std::vector<Block>> branches{};  // an empty branch passes its input on
  Joint joint = Joint::kSum;
  std::vector<std::string> again{};  // names of the following layers that are equal to this one

  const LayerPlan& at() const { return *lines.front(); }
  size_t count() const { return again.size() + 1; }
};

// The layer `cut` always begins a box.
std::vector<Block> blocks_of(std::span<const LayerPlan> layers, const LayerPlan* cut);

}  // namespace owt::drawing
