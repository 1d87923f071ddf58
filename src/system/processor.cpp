#include "src/system/processor.h"

#include <fstream>

namespace owt {

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 1);
  return "";
}

}  // namespace owt
