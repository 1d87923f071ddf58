// The transfers of a step, in no order: each with its collective, calls and bytes.
#pragma once

#include "src/plan/plan.h"

namespace owt {

// Fills in the plan's transfers and their ids at the layers and the step, and decides whether the loss is sharded. The
// rest of the plan must be complete.
void list_transfers(Plan& plan);

// The same transfers with the bytes that this rank sends. If rows are dealt by shares, model groups send different
// amounts.
std::vector<Transfer> transfers_of(Plan plan, int rank);

}  // namespace owt
