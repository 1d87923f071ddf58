// dp, and dp-zero and dp-star, in which ranks update weights for others (sharded_update.h, star_update.h).
#include "src/plan/strategy_families.h"
#include "src/plan/transfer_list.h"

namespace owt {

// Under dp-zero each rank has the squares of its shard's gradients. Under dp-star rank 0 has all gradients, so no norms
// travel.
std::vector<StrategyFacts> data_parallel_family() {
  return {
      {.name = "dp",
       .help = "every worker has all weights; gradients are summed",
       .can_average = true,
       .order = data_parallel},
      {.name = "dp-zero",
       .help =
           "as dp, but each worker updates a shard of the weights and keeps the optimizer's state only for that shard",
       .updates = Updates::kShares,
       .order = updates_in_shares,
       .transfers =
           [](TransferList& list) {
             list.shards(Collective::kReduceScatter, Collective::kAllGather);
             list.norms(Group::kWorld);
           }},
      {.name = "dp-star",
       .help = "as dp, but worker 0 receives all gradients, updates the weights and sends them to every other worker",
       .updates = Updates::kFirst,
       .order = updates_in_shares,
       .transfers = [](TransferList& list) { list.shards(Collective::kReceive, Collective::kSend); }}};
}

}  // namespace owt
