// ps: workers push gradients to servers, which update shards of the weights (src/server/parameter_server.h).
#include "src/plan/strategy_families.h"
#include "src/plan/transfer_list.h"
#include "src/system/check.h"

namespace owt {
namespace {

// Only workers that compute have rows.
void place_servers(Plan& plan, const std::vector<std::unique_ptr<Layer>>&) {
  if (!plan.has_servers_apart() || !plan.request.shares.empty()) return;
  OWT_CHECK(plan.request.servers < plan.ranks());
  plan.request.shares.assign(static_cast<size_t>(plan.computing_ranks()), 1);
  plan.request.shares.resize(static_cast<size_t>(plan.ranks()), 0);
}

// Servers exchange one message with each worker: an all-to-all, or a star if the servers are not workers.
void server_transfers(TransferList& list) {
  const bool star = list.plan().has_servers_apart();
  list.shards(star ? Collective::kReceive : Collective::kAllToAll, star ? Collective::kSend : Collective::kAllToAll);
  list.result(Collective::kAllGather, list.plan().ranks() * kToldBytes);
}

// Each server has a part of the gradients. With a delay, no step's weights exist as a whole.
void check_server(const Plan& plan) {
  const PlanRequest& request = plan.request;
  const auto refuse = [&](const std::string& what, const char* cure) {
    fail(what, ", and under ", name_of(request.strategy), " each worker updates a shard of the weights on its own; ",
         cure);
  };
  if (plan.has_norms())
    refuse("optimizer.clip and lars need norms of all gradients of a step", "use another optimizer, or dp-zero");
  if (request.half_wire && request.push_filters.any())
    fail("ps.filters and parallel.wire = \"bf16\" both set how gradients are sent; leave one of them out");
  if (request.server.backup > 0) refuse("backup workers exist only in a simulation", "use owt simulate");
  if (request.ema_every > 0 && plan.has_servers_apart())
    refuse("optimizer.ema averages the weights of every step", "let every worker serve (ps.servers = 0)");
  if (request.server.synchronous()) return;
  if (request.ema_every > 0) refuse("optimizer.ema averages the weights of whole steps", "use ps.delay = 0");
  if (request.server.by_task() && request.server.delay == kNoBound)
    refuse("ps.pushes = 0 with ps.delay = inf would keep any number of gradients", "use ps.pushes = 1");
  if (steps_apart(plan) > 0) refuse_step_sums(plan, "but with ps.delay the workers are at different steps");
}

std::string who_serves(const Plan& plan) {
  if (!plan.has_servers_apart()) return "every worker serves a shard of";
  const int servers = updating_ranks(plan);
  if (servers == 1) return "the last worker computes nothing and serves";
  return concat("the last ", servers, " workers compute nothing and serve");
}

std::string servers_note(const Plan& plan) {
  return concat(who_serves(plan), " the weights, ", plan.request.server.text(),
                filters_pushes(plan) ? "; pushes are filtered: " + plan.request.push_filters.text() : "");
}

}  // namespace

std::vector<int> dispensable_workers(const Plan& plan) {
  std::vector<int> workers;
  for (int rank = 1; plan.has_servers_apart() && rank < plan.computing_ranks(); ++rank) workers.push_back(rank);
  return workers;
}

int64_t steps_apart(const Plan& plan) {
  if (!plan.serves()) return 0;
  const int64_t delay = plan.request.server.delay;
  return delay == kNoBound ? kMostApart : std::min(delay, kMostApart);
}

bool filters_pushes(const Plan& plan) { return plan.serves() && plan.request.push_filters.any(); }

// Servers pay off with transient stragglers, which predictions do not cover.
std::vector<StrategyFacts> server_family() {
  return {{.name = "ps",
           .help = "every worker serves a shard of the weights; the others push gradients to it and pull weights from "
                   "it; see [ps]",
           .updates = Updates::kServers,
           .cpu_only = true,
           .for_auto = false,
           .order = parameter_server,
           .place = place_servers,
           .transfers = server_transfers,
           .check = check_server,
           .note = servers_note}};
}

}  // namespace owt
