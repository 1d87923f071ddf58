// The names of this program's functions, including local ones, from its symbol table.
#pragma once

#include <string>

namespace simulated_gpu {

// The function that begins at this address, without namespaces, result and parameters: "add_bias<float>"; "?": none.
std::string name_of_function(const void* code);

}  // namespace simulated_gpu
