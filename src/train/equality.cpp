#include "src/train/equality.h"

#include <vector>

#include "src/core/check.h"
#include "src/core/files.h"

namespace owt {
namespace {

int64_t hash_of(const Tensor& values) {
  const Tensor here = values.to(Device::kCpu);
  return static_cast<int64_t>(checksum_of({static_cast<const char*>(here.raw()), static_cast<size_t>(here.bytes())}));
}

// rank_of: of a member of `comm`, among all ranks.
template <class RankOf>
void compare(const std::vector<Param*>& params, Communicator& comm, Device device, int64_t step,
             const std::string& how_to_go_on, const RankOf& rank_of) {
  const auto count = static_cast<int64_t>(params.size());
  if (count == 0 || comm.ranks() == 1) return;
  Tensor mine({count}, DType::kI64), here;
  for (int64_t i = 0; i < count; ++i) mine.data<int64_t>()[i] = hash_of(params[static_cast<size_t>(i)]->value);
  {
    Tensor all({comm.ranks(), count}, DType::kI64, device);
    comm.all_gather(mine.to(device), all, {}).wait();
    here = all.to(Device::kCpu);
  }
  comm.meet();
  const int64_t* hashes = here.data<int64_t>();
  for (int64_t i = 0; i < count; ++i)
    for (int r = 1; r < comm.ranks(); ++r)
      if (hashes[r * count + i] != hashes[i])
        fail("step ", step, ": '", params[static_cast<size_t>(i)]->name, "' of rank ", rank_of(r),
             " is not that of rank ", rank_of(0), ", though both should hold the same values; look at the memory and ",
             "the links of their hosts; ", how_to_go_on);
}

}  // namespace

void check_equality(const Plan& plan, RankModel& model, const Groups& groups, int64_t step,
                    const std::string& how_to_go_on) {
  const Device device = plan.request.on.device;
  const int members = plan.model_ranks, place = groups.world().rank() % members;
  compare(model.front_params(), groups.world(), device, step, how_to_go_on, [](int rank) { return rank; });
  compare(model.back_params(), groups.replicas(), device, step, how_to_go_on,
          [&](int replica) { return replica * members + place; });
}

}  // namespace owt
