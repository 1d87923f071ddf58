// The JSON that commands print for scripts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace owt {

using OutputJson = nlohmann::ordered_json;

// Replaces bytes that are no UTF-8, which names of files and classes may contain.
inline std::string json_lines(const OutputJson& value) {
  return value.dump(1, ' ', false, OutputJson::error_handler_t::replace) + "\n";
}

}  // namespace owt
