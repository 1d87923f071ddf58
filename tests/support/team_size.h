// Team sizes of the calling host thread in tests.
#pragma once

#include "src/core/threads.h"

namespace owt {

// Sets the team size; the destructor restores it.
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
