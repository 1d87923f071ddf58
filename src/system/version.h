// The version of this program.
#pragma once

#include <string>

namespace owt {

// "0.1.0 (sources 3f2a9c81d0b4)": the release, and a checksum of the sources it was built from, which distinguishes two
// builds of one release. Defined in a file that version.cmake writes.
std::string program_version();

}  // namespace owt
