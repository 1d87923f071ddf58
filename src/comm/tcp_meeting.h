// How the processes of a launch find each other over TCP. Rank 0 listens at the address that all of them know
// (MASTER_ADDR, MASTER_PORT). The others send it the address where they listen themselves, and get the list of all.
// Then every pair connects. Strangers and processes that speak another version are refused. For tcp_links.cpp.
#pragma once

#include <string>
#include <vector>

#include "src/comm/launch.h"

namespace owt {

struct TcpMeeting {
  std::vector<std::string> texts;  // text of each process, by rank
  std::vector<int> sockets;        // connected to each process; -1 for this one. The caller closes them
};

// Returns when every process is connected to every other one. Throws Error on all of them otherwise, after `seconds` at
// the latest; it says who is missing. mine: at most 32 KiB.
TcpMeeting meet_over_tcp(const ProcessLaunch& launch, const std::string& mine, double seconds);

}  // namespace owt
