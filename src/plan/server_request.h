// The settings of a parameter server: the table [ps] of a recipe.
#pragma once

#include "src/plan/consistency.h"
#include "src/plan/filter_settings.h"

namespace owt {

struct ServerRequest {
  ConsistencyRules rules{};
  FilterSettings filters{};  // what workers filter out of pushed gradients, or round
  // Ranks that only serve weights: the last ones, whose shares of the rows are 0. 0: every rank serves and computes.
  int servers = 0;
  bool tolerate_loss = false;  // with such ranks: training continues when workers are lost

  // The same servers with synchronous steps and whole gradients.
  ServerRequest synchronous() const { return {.servers = servers, .tolerate_loss = tolerate_loss}; }
  bool operator==(const ServerRequest&) const = default;
};

}  // namespace owt
