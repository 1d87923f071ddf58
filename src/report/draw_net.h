// A drawing of a network, for people: its layers from top to bottom with their cost, the activations between them, and
// the parts of each rank of a plan.
#pragma once

#include <string>

#include "src/plan/plan.h"

namespace owt {

// A self-contained SVG document, light or dark like its reader's screen. in_html: a fragment for a page, without any
// address, not even of SVG's name space. Layers that do not change the shape of their input share the box of the layer
// before them. The branches of a composite layer stand side by side, and repeated composite layers are drawn once. Only
// the first 16 ranks are drawn.
std::string draw_net(const Plan& plan, bool in_html = false);

// The text of its style element. A page that embeds the drawing has to allow it.
extern const char* const kNetStyle;

}  // namespace owt
