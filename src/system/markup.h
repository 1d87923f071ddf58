// Text in HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace owt {

// For text and for attribute values in double quotes. Control characters are replaced as in printable()
// (src/system/printable.h).
std::string escaped(std::string_view text);
// Keeps at most `characters` characters (of UTF-8): "conv_layer" in 6 is "conv_…".
std::string shortened(const std::string& text, size_t characters);
// Does the same for a name that is identified by its end: "branch2.0.conv" in 7 is "…0.conv".
std::string shortened_in_front(const std::string& name, size_t characters);

}  // namespace owt
