#include "src/comm/communicator.h"

namespace owt {

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kReduce:
      return "reduce";
    case Collective::kAllToAll:
      return "all_to_all";
  }
  return "";
}

int64_t bytes_sent(Collective collective, int64_t bytes, int ranks) {
  const int64_t passes = collective == Collective::kAllReduce ? 2 : 1;
  return passes * bytes * (ranks - 1) / ranks;
}

}  // namespace owt
