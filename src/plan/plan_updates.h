// The updates of a plan's weights: which ranks do them, in which kind of step, and from which gradients.
#pragma once

#include <vector>

#include "src/plan/plan.h"

namespace owt {

// The number of ranks that have shards of the update: the last ones, if the shards are equal.
int updating_ranks(const Plan& plan);
bool updates_share(const Plan& plan, int rank);
bool shares_evenly(const Plan& plan);
// The elements of a bucket in a rank's shard, if the shards are equal.
Slice even_share(const Plan& plan, const Bucket& bucket, int rank);
// The elements of a bucket that a rank updates.
Slice updated_share(const Plan& plan, const Bucket& bucket, int rank);
// The part of the elements [first, first + count) of a bucket that is in a share of it, relative to `first`.
Slice share_of(const Slice& share, int64_t first, int64_t count);
// The elements of a parameter (number `param` of this layer) that each rank updates, by rank in memory order. They are
// the part of the rank's shard of the bucket that belongs to the parameter, which may be empty.
std::vector<Slice> updated_parts(const Plan& plan, int64_t layer, size_t param);
// If ranks update parts of a matrix (Param::is_matrix), each gathers the whole matrix: the elements that every rank of
// matrix_group() gives, its part padded to the longest, and one number. 0: the ranks that update the matrix have all of
// it, or it is none.
int64_t matrix_block(const Plan& plan, int64_t layer, size_t param);
Group matrix_group(const Plan& plan);
// The number of ranks that divide an update of the front part among them; 1: every rank does all of it.
int ranks_per_update(const Plan& plan);
// The fraction of an update of this bucket (an index) that is done by a rank, if it does any.
double update_fraction(const Plan& plan, int bucket);
// The number of updates of the back part in a full step.
int back_updates(const Plan& plan);
// The workers that training can continue without. If servers are ranks of their own, these are all workers except rank
// 0, which writes files and watches the others.
std::vector<int> dispensable_workers(const Plan& plan);
// Whether training continues without such a worker when it is lost.
bool tolerates_loss(const Plan& plan);
bool are_together(const Plan& plan, int rank, int other, Group group);  // both are in the same group of that kind

// Whether layers may run with stashed or predicted weights (pipeline.h).
bool stashes_weights(const Plan& plan);
// The number of steps after which a rank receives the others' results; other ranks may be this many steps behind
// (parameter_server.h).
int64_t steps_apart(const Plan& plan);
// The kind of a step with this number (from 0), not considering average_from: one of average_every steps averages.
StepKind kind_of(const Plan& plan, int64_t step);
int local_period(const Plan& plan);  // average_every if the plan averages, else 1
int period_of(const Plan& plan);     // steps after which the kinds of step repeat

// Whether the gradients of a layer's parameters are sums over ranks, micro-batches or rounds, or come from another
// rank.
bool sums_gradients(const Plan& plan, int64_t layer);
// Whether a layer's first parameter is updated without storing its gradient, because it is not such a sum. On the CPU
// it is updated while the gradient is computed. With large weights and small batches this saves most of the time of
// both. On a GPU the update's kernel computes the gradient, in precision bf16 and for at most kMostRowsAtOnce rows.
bool updates_at_once(const Plan& plan, int64_t layer);
bool multiplies_in_update(const Plan& plan, int64_t layer);  // the same, on a GPU
// Per weight that has a velocity 18 bytes move, and not 22, since the gradient is neither written nor read. An H200 at
// 4.3 TB/s needs 4.2 ps for them. A product of 256 rows takes 1.9 ps at a third of 790 TFLOP/s, which a kernel without
// wgmma is assumed to reach, and can overlap with the traffic of other weights. For more rows cuBLASLt, with its larger
// tiles, gains more on the product than the traffic costs.
constexpr int64_t kMostRowsAtOnce = 256;
// The type of a parameter's gradient. In precision bf16, weights of matrix products have bf16 gradients if these are
// not such sums; all others are f32.
DType gradient_type(const Plan& plan, int64_t layer, size_t param);
bool has_copy16(const Plan& plan, int64_t layer, size_t param);  // Param::has_copy16()
bool has_copies16(const Plan& plan, const Bucket& bucket);       // whether one of its parameters has a bf16 copy

}  // namespace owt
