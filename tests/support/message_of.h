// Of an error that is wanted.
#pragma once

#include <string>

#include "src/core/check.h"

namespace owt {

// What the error says that the call throws; empty where it throws none. Another one goes through, and fails the test.
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
