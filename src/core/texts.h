// Several texts as one, for messages between processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace owt {

// Each as its length and its bytes, which may be any. unpacked() throws Error for what packed() has not made.
std::string packed(const std::vector<std::string>& texts);
std::vector<std::string> unpacked(const std::string& all);

}  // namespace owt
