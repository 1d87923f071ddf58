// Texts within HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace owt {

// For text and for values of attributes between double quotes; else as printable() (src/core/printable.h).
std::string escaped(std::string_view text);
// At most so many characters (of UTF-8): "conv_layer" in 6 is "conv_…".
std::string shortened(const std::string& text, size_t characters);
// The same of a name whose end tells it apart: "branch2.0.conv" in 7 is "…0.conv".
std::string shortened_in_front(const std::string& name, size_t characters);

}  // namespace owt
