// A drawing of a network, for people: its layers from top to bottom with what they cost, what goes from one to the
// next, and what each rank of a plan has of them.
#pragma once

#include <string>

#include "src/parallel/plan.h"

namespace owt {

// An SVG document that needs nothing else, light or dark as its reader's screen is; in_html: what stands in a page,
// which names no address, not even that of SVG's name space. Layers that work on what another gives without changing
// its shape share its box, the branches of a composite layer stand side by side, and composite layers that are the same
// again are drawn once. Of more than 16 ranks the first 16 are drawn.
std::string draw_net(const Plan& plan, bool in_html = false);

// The text of its style element, which a page that holds the drawing has to allow.
extern const char* const kNetStyle;

}  // namespace owt
