// dp, and dp-zero and dp-star, in which ranks update weights for others (sharded_update.h, star_update.h).
#include "src/plan/step_order.h"
#include "src/plan/strategy_families.h"
#include "src/plan/transfer_list.h"

namespace owt {
namespace {

// dp, and every strategy on one rank or for a network with nothing to split: each rank runs the whole network on its
// own rows. The gradients of a bucket are sent as soon as the last of its layers is done; the sum overlaps with the
// rest of the backward pass. Then every rank updates all weights. Local steps send no gradients; averaging steps
// average the weights.
// Source: Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", section 3.2.
void data_parallel(StepOrder& step) {
  step.start_labels();
  step.forward_front();
  step.loss(0);
  step.backward_front();
  step.gradient_norms();
  step.update_dense();
  step.update_front();
  step.average_front();
}

// dp-zero and dp-star: the sum of a bucket goes to the rank that updates it, and that rank sends the new weights.
//   dp-zero: each rank updates a shard; reduce-scatter of gradients, all-gather of weights
//   dp-star: rank 0 updates everything and sends the weights to every other rank
// A bucket is updated after the next one has been sent, so its sum overlaps with the backward pass of the layers
// between. The choice must not depend on what has arrived, since all ranks call the collectives in the same order.
// Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", P_os; Li et
// al. 2014, "Scaling Distributed Machine Learning with the Parameter Server": this is one such server, which waits for
// all workers.
void updates_in_shares(StepOrder& step) {
  step.forward_front();
  step.loss(0);
  step.backward_front([&](int left) { step.update_shares(left); });
  step.gradient_norms();
  step.update_shares(step.buckets());
  step.wait_for_weights();
}

}  // namespace

// Under dp-zero each rank has the squares of its shard's gradients. Under dp-star rank 0 has all gradients, so no norms
// travel.
std::vector<StrategyFacts> data_parallel_family() {
  return {
      {.name = "dp",
       .help = "every worker has all weights; gradients are summed",
       .gathers_labels = true,
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
