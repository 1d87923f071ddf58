// What travels in a step of a plan, whenever its order wants it: each transfer with its collective, calls and bytes.
#pragma once

#include "src/parallel/plan.h"

namespace owt {

// Fills the plan's transfers, their ids at the layers and of the step, and says whether the loss is sharded. Wants
// everything else of the plan.
void list_transfers(Plan& plan);

// The same transfers with the bytes that this rank sends: where rows are dealt by shares, model groups send unlike
// amounts.
std::vector<Transfer> transfers_of(Plan plan, int rank);

}  // namespace owt
