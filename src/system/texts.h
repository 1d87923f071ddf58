// Several texts as one, for messages between processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace owt {

// Each text as its length and its bytes; any bytes are allowed. unpacked() throws Error for input not made by packed().
std::string packed(const std::vector<std::string>& texts);
std::vector<std::string> unpacked(const std::string& all);

}  // namespace owt
