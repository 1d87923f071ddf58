// What carries bytes between the processes of a launch: MPI (mpi_links.cpp) or TCP connections (tcp_links.cpp). For
// files of this folder; only the communication thread (comm_thread.h) uses the links.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/launch.h"
#include "src/system/check.h"

namespace owt {

// The links failed, perhaps because the process at the other end is gone.
class LinkError : public Error {
 public:
  using Error::Error;
};

// Transfers in one direction, each between two processes. Their values belong to the links.
using Requests = std::vector<std::uintptr_t>;

// Larger tensors are sent in parts, so that a large tensor on a slow link shows progress (stuck.h).
constexpr int64_t kMostInRequest = 4 << 20;

class ProcessLinks {
 public:
  virtual ~ProcessLinks() = default;
  virtual const char* name() const = 0;  // "MPI", for messages
  // Connects the processes, and returns the `mine` of each, by rank. Throws Error. TCP keeps the time limit; MPI cannot
  // be interrupted.
  virtual std::vector<std::string> start(const std::string& mine, double seconds) = 0;
  // Each adds a transfer of at most kMostInRequest bytes to the list. Between two processes, the n-th send with a tag
  // meets the n-th receive with that tag. There is no other order, and no transfer waits for one with another tag.
  virtual void send(Requests& requests, const std::byte* from, int64_t bytes, int to, int tag) = 0;
  virtual void receive(Requests& requests, std::byte* to, int64_t bytes, int from, int tag) = 0;
  struct Ended {
    size_t index;   // in the list
    int64_t bytes;  // size of the message that was received; -1: larger than the memory for it
  };
  // Transfers move only during this call. Returns the requests of the list that have ended since the last call; the
  // result is valid until the next one. Throws LinkError.
  virtual const std::vector<Ended>& test(Requests& requests) = 0;
  // Whether rest() works: it returns when a transfer may move, after wake(), or after the time.
  virtual bool can_rest() const { return false; }
  virtual void rest(std::chrono::milliseconds) {}
  virtual void wake() {}      // ends a rest(); for any thread
  virtual void finish() = 0;  // no request is left; not interrupted by lost ranks
};

// Whether this launch uses TCP: it has an address (launch.h), and no MPI launcher that the MPI of this program knows.
bool uses_tcp(const ProcessLaunch& launch);
std::unique_ptr<ProcessLinks> make_mpi_links(const ProcessLaunch& launch);  // throws Error if built without MPI
std::unique_ptr<ProcessLinks> make_tcp_links(const ProcessLaunch& launch);

}  // namespace owt
