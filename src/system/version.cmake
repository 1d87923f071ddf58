# Writes OUTPUT, a C++ file that defines program_version(): VERSION, and a checksum of the sources below ROOT.
file(GLOB_RECURSE sources RELATIVE ${ROOT} ${ROOT}/src/*.* ${ROOT}/layers/*.* ${ROOT}/data/*.* ${ROOT}/tools/*.*)
list(FILTER sources INCLUDE REGEX "\\.(cpp|cu|h|cuh|js|css)$")
list(SORT sources)
set(all "")
foreach(source ${sources})
  file(SHA256 ${ROOT}/${source} checksum)
  string(APPEND all "${source} ${checksum}\n")
endforeach()
string(SHA256 checksum "${all}")
string(SUBSTRING ${checksum} 0 12 checksum)
file(WRITE ${OUTPUT} "#include \"src/system/version.h\"

std::string owt::program_version() { return \"${VERSION} (sources ${checksum})\"; }
")
