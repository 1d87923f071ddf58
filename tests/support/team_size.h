// Sizes of the calling host thread's team in tests.
#pragma once

#include "src/core/threads.h"

namespace owt {

// Sets the size of the team while it lives.
class TeamSize {
 public:
  explicit TeamSize(int threads) : before_(team_size()) { set_team_size(threads); }
  ~TeamSize() { set_team_size(before_); }
  TeamSize(const TeamSize&) = delete;
  TeamSize& operator=(const TeamSize&) = delete;

 private:
  int before_;
};

}  // namespace owt
