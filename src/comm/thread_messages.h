// Messages between ranks that are threads of one process. The second of the two ranks to call copies, so that neither
// call waits for the other rank.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "src/comm/communicator.h"

namespace owt {

class ThreadMessages : public std::enable_shared_from_this<ThreadMessages> {
 public:
  // The calling rank's end of a message; `stream` belongs to the rank. Throws Aborted if a rank failed.
  Event run(const Call& call, int rank, const Stream& stream);
  // Makes run(), and the events of messages with one end, throw Aborted from then on.
  void abort();

 private:
  class Delivery;
  struct End {
    Tensor tensor;
    Event ready;
    std::shared_ptr<Delivery> delivery{};
  };
  using Ends = std::map<std::pair<int, int>, std::deque<End>>;  // by sender and receiver, in the order of the calls

  std::optional<End> other_end(bool sends, std::pair<int, int> route, End& mine);
  void check() const;

  std::mutex mutex_;  // guards the members below, and every Delivery
  std::condition_variable delivered_;
  Ends sent_, wanted_;
  bool aborted_ = false;
};

}  // namespace owt
