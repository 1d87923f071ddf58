// Where the roster of a run is (roster.h), and questions to it from other processes than workers.
#pragma once

#include <optional>
#include <string>

#include "src/system/sockets.h"

namespace owt {

struct RunAddress {
  std::string host;
  int port = 0;
  std::string run{};  // distinguishes runs that were at the same address; empty: any run
  std::string text() const;
};
// "HOST:PORT" or "HOST:PORT RUN"; nullopt for another text.
std::optional<RunAddress> run_address_in(const std::string& text);

struct ReachedRoster {
  MessageConnection connection;
  std::string address;  // numeric, one of the host's
};
// Throws Error with the reasons if no address of the host answers.
ReachedRoster reach_roster(const RunAddress& address);

// The workers of a run.
struct RunWorkers {
  int now = 0, least = 1, most = 1;
  int soon = 0;  // when the workers that were asked to leave have left, and all that were asked for have come
};
// Asks for that number of workers, or with 0 only for the state. Returns the workers at that time. Throws Error if the
// roster cannot be reached or refuses.
RunWorkers ask_roster(const RunAddress& address, int workers);

}  // namespace owt
