// dladdr() finds exported functions only, and kernels are not exported.
#include "tests/simulated_gpu/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <vector>

namespace simulated_gpu {
namespace {

// The offset between addresses in the file and in the loaded program.
uintptr_t load_bias() {
  uintptr_t bias = 0;
  const auto of_the_program = [](dl_phdr_info* object, size_t, void* found) {
    *static_cast<uintptr_t*>(found) = object->dlpi_addr;
    return 1;  // the program comes first
  };
  dl_iterate_phdr(of_the_program, &bias);
  return bias;
}

// By address in the file, as the linker assigned them.
std::map<uintptr_t, std::string> read_functions() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(bytes.data() + header->e_shoff);
  std::map<uintptr_t, std::string> functions;
  for (const auto* section = sections; section != sections + header->e_shnum; ++section) {
    if (section->sh_type != SHT_SYMTAB) continue;
    const char* names = bytes.data() + sections[section->sh_link].sh_offset;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(bytes.data() + section->sh_offset);
    for (size_t i = 0; i < section->sh_size / sizeof *symbols; ++i)
      if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC)
        functions.emplace(symbols[i].st_value, names + symbols[i].st_name);
  }
  return functions;
}

void erase_all(std::string& text, const std::string& part) {
  for (size_t at; (at = text.find(part)) != std::string::npos;) text.erase(at, part.size());
}

std::string readable(const std::string& mangled) {
  const std::unique_ptr<char, void (*)(void*)> whole(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, nullptr),
                                                     std::free);
  std::string name = whole ? whole.get() : mangled;
  for (const char* part : {"(anonymous namespace)::", "owt::", "simulated_gpu::", "void "}) erase_all(name, part);
  return name.substr(0, name.find('('));
}

}  // namespace

std::string name_of_function(const void* code) {
  static const std::map<uintptr_t, std::string> functions = read_functions();
  static const uintptr_t bias = load_bias();
  const auto found = functions.find(reinterpret_cast<uintptr_t>(code) - bias);
  return found == functions.end() ? "?" : readable(found->second);
}

}  // namespace simulated_gpu
