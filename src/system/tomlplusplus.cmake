# The target tomlplusplus::tomlplusplus: the system's package, or, if there is none (Ubuntu 22.04), version 3.4.0 from
# its repository. Without a network, set FETCHCONTENT_SOURCE_DIR_TOMLPLUSPLUS to a local copy.
find_package(tomlplusplus QUIET)
if(NOT tomlplusplus_FOUND)
  message(STATUS "owt: found no toml++ (package tomlplusplus), fetching version 3.4.0")
  include(FetchContent)
  FetchContent_Declare(tomlplusplus GIT_REPOSITORY https://github.com/marzer/tomlplusplus.git
                       GIT_TAG 30172438cee64926dc41fdd9c11fb3ba5b2ba9de)
  FetchContent_MakeAvailable(tomlplusplus)
endif()
