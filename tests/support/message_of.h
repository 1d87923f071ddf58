// The message of an expected error.
#pragma once

#include <string>

#include "src/system/check.h"

namespace owt {

// The message of the error that the call throws; empty if it throws none. Another exception passes through and fails
// the test.
template <class Wanted = Error, class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Wanted& e) {
    return e.what();
  }
  return "";
}

}  // namespace owt
