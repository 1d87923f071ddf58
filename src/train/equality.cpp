#include "src/train/equality.h"

#include <vector>

#include "src/comm/on_host.h"
#include "src/parallel/param_gather.h"
#include "src/system/check.h"
#include "src/system/files.h"

namespace owt {
namespace {

int64_t hash_of(const Tensor& values) {
  uint64_t hash = 0;
  for_each_piece(values, [&](int64_t, const Tensor& rows) {
    hash = 31 * hash + checksum_of({static_cast<const char*>(rows.raw()), static_cast<size_t>(rows.bytes())});
  });
  return static_cast<int64_t>(hash);
}

// rank_of: converts a rank of `comm` to a rank among all.
template <class RankOf>
void compare(const std::vector<Param*>& params, Communicator& comm, Device device, int64_t step,
             const std::string& how_to_resume, const RankOf& rank_of) {
  if (params.empty() || comm.ranks() == 1) return;
  std::vector<int64_t> mine;
  for (const Param* param : params) mine.push_back(hash_of(param->value));
  const std::vector<int64_t> hashes = on_host::gather(comm, mine, device);
  for (size_t i = 0; i < hashes.size(); ++i)
    if (hashes[i] != hashes[i % mine.size()])
      fail("step ", step, ": '", params[i % mine.size()]->name, "' of rank ",
           rank_of(static_cast<int>(i / mine.size())), " is not that of rank ", rank_of(0),
           ", though both should hold the same values; look at the memory and the links of their hosts; ",
           how_to_resume);
}

}  // namespace

void check_equality(const Plan& plan, RankModel& model, const Groups& groups, int64_t step,
                    const std::string& how_to_resume) {
  const Device device = plan.request.on.device;
  const int members = plan.model_ranks, place = groups.world().rank() % members;
  compare(model.front_params(), groups.world(), device, step, how_to_resume, [](int rank) { return rank; });
  compare(model.back_params(), groups.replicas(), device, step, how_to_resume,
          [&](int replica) { return replica * members + place; });
}

}  // namespace owt
