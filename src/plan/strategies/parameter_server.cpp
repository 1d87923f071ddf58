// ps: workers push gradients to servers, which update shards of the weights (src/server/parameter_server.h).
#include <algorithm>
#include <cmath>

#include "src/plan/plan_updates.h"
#include "src/plan/step_order.h"
#include "src/plan/strategy_families.h"
#include "src/plan/transfer_list.h"
#include "src/plan/wire_bytes.h"
#include "src/system/check.h"

namespace owt {
namespace {

bool serves(const Plan& plan) { return plan.updates() == Updates::kServers; }

// ps: as dp-zero, but a server updates each shard (parameter_server.h). Gradients are pushed to it bucket by bucket.
// The server answers with the weights when the worker may start its next step: with a delay of 0 after all workers have
// pushed, with a larger delay perhaps earlier. The step's result is sent before the gradients.
// Source: Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server".
void serve(StepOrder& step) {
  step.forward_front();
  step.loss(0);
  step.start_result();
  step.backward_front([&](int left) { step.update_shares(left); });
  step.update_shares(step.buckets());
  step.wait_for_weights();
}

// Only workers that compute have rows.
void place_servers(Plan& plan, const std::vector<std::unique_ptr<Layer>>&) {
  if (plan.ranks() == 1 || plan.request.options.server.servers == 0) return;
  plan.updaters = plan.request.options.server.servers;
  OWT_CHECK(plan.updaters < plan.ranks());
  if (!plan.request.shares.empty()) return;
  plan.request.shares.assign(static_cast<size_t>(plan.computing_ranks()), 1);
  plan.request.shares.resize(static_cast<size_t>(plan.ranks()), 0);
}

// Servers exchange one message with each worker: an all-to-all, or a star if the servers are not workers.
void server_transfers(TransferList& list) {
  const bool star = list.plan().updaters > 0;
  list.shards(star ? Collective::kReceive : Collective::kAllToAll, star ? Collective::kSend : Collective::kAllToAll);
  list.result(Collective::kAllGather, list.plan().ranks() * kPushHeaderBytes);
}

// Each server has a part of the gradients. With a delay, no step's weights exist as a whole.
void check_server(const Plan& plan) {
  const PlanRequest& request = plan.request;
  const ConsistencyRules& rules = request.options.server.rules;
  const auto refuse = [&](const std::string& what, const char* cure) {
    fail(what, ", and under ", name_of(request.strategy), " each worker updates a shard of the weights on its own; ",
         cure);
  };
  if (plan.has_norms())
    refuse("optimizer.clip and lars need norms of all gradients of a step", "use another optimizer, or dp-zero");
  if (plan.has_matrices())
    refuse("optimizer type 'muon' needs the whole gradient of a matrix", "use another optimizer, or dp-zero");
  if (request.lookahead)
    refuse("optimizer.lookahead changes the weights between updates", "leave it out, or use dp-zero");
  if (request.bf16_transport && filters_gradients(plan))
    fail("ps.filters and parallel.wire = \"bf16\" both set how gradients are sent; leave one of them out");
  if (rules.backup > 0) refuse("backup workers exist only in a simulation", "use owt simulate");
  if (request.ema_every > 0 && plan.updaters > 0)
    refuse("optimizer.ema averages the weights of every step", "let every worker serve (ps.servers = 0)");
  if (request.options.server != ServerRequest{.servers = request.options.server.servers})
    refuse_canonical(plan, "ps.delay, pushes, filters and tolerate_loss change what an update sums; leave them out");
  if (rules.synchronous()) return;
  if (request.ema_every > 0) refuse("optimizer.ema averages the weights of whole steps", "use ps.delay = 0");
  if (rules.by_task() && rules.delay == kNoBound)
    refuse("ps.pushes = 0 with ps.delay = inf would keep any number of gradients", "use ps.pushes = 1");
  if (steps_apart(plan) > 0) refuse_step_sums(plan, "but with ps.delay the workers are at different steps");
}

std::string who_serves(const Plan& plan) {
  if (plan.updaters == 0) return "every worker serves a shard of";
  if (plan.updaters == 1) return "the last worker computes nothing and serves";
  return concat("the last ", plan.updaters, " workers compute nothing and serve");
}

std::string servers_note(const Plan& plan) {
  const ServerRequest& server = plan.request.options.server;
  return concat(who_serves(plan), " the weights, ", server.rules.text(),
                server.filters.any() ? "; pushes are filtered: " + server.filters.text() : "");
}

}  // namespace

std::vector<int> dispensable_workers(const Plan& plan) {
  std::vector<int> workers;
  for (int rank = 1; plan.updaters > 0 && rank < plan.computing_ranks(); ++rank) workers.push_back(rank);
  return workers;
}

bool tolerates_loss(const Plan& plan) { return plan.updaters > 0 && plan.request.options.server.tolerate_loss; }

int64_t steps_apart(const Plan& plan) {
  if (!serves(plan)) return 0;
  const int64_t delay = plan.request.options.server.rules.delay;
  return delay == kNoBound ? kMostApart : std::min(delay, kMostApart);
}

bool filters_gradients(const Plan& plan) { return serves(plan) && plan.request.options.server.filters.any(); }

int64_t filtered_bytes(const Plan& plan, const Bucket& bucket) {
  const FilterSettings& filters = plan.request.options.server.filters;
  const int64_t servers = updating_ranks(plan), each = bucket.elements / servers;
  const auto sent = static_cast<int64_t>(std::ceil(filters.usual_share() * static_cast<double>(each)));
  return servers * filters.message_bytes(each, sent, trained_tensors(plan, bucket));
}

// Servers pay off with transient stragglers, which predictions do not cover.
std::vector<StrategyFacts> server_family() {
  return {{.name = "ps",
           .help = "every worker serves a shard of the weights; the others push gradients to it and pull weights from "
                   "it; see [ps]",
           .updates = Updates::kServers,
           .cpu_only = true,
           .for_auto = false,
           .order = serve,
           .place = place_servers,
           .transfers = server_transfers,
           .check = check_server,
           .note = servers_note}};
}

}  // namespace owt
