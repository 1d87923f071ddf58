// The command `owt` of a build with OWT_CPU_LEVELS: executes the program for the best level that this processor
// supports and $OWT_MAX_CPU allows. The programs, owt-LEVEL, are in the same folder in the build, and in ../libexec
// when installed.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "src/system/check.h"
#include "src/system/cpu_level.h"
#include "src/system/process_start.h"

namespace {

namespace fs = std::filesystem;

fs::path program_for(owt::CpuLevel allowed, const fs::path& folder) {
  for (auto level = owt::kCpuLevels.rbegin(); level != owt::kCpuLevels.rend(); ++level)
    for (const fs::path& place : {folder, folder.parent_path() / "libexec"})
      if (const fs::path program = place / owt::concat("owt-", name_of(*level));
          *level <= allowed && fs::exists(program))
        return program;
  owt::fail("there is no program owt-", name_of(allowed), " or of a lower level in ", folder.string(), " or ",
            (folder.parent_path() / "libexec").string(), "; install owt again");
}

}  // namespace

int main(int, char** words) {
  owt::start_process();
  try {
    const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
    const fs::path program = program_for(owt::allowed_cpu_level(), folder);
    execv(program.c_str(), words);
    owt::fail("cannot run ", program.string(), ": ", std::strerror(errno));
  } catch (const std::exception& e) {
    std::cerr << "owt: error: " << e.what() << '\n';
    return 1;
  }
}
