// Bytes that a rank of a plan sends in a step, and bytes that it holds.
#pragma once

#include <string>

#include "src/plan/plan.h"

namespace owt {

// Bytes through a rank's link in a step.
struct Traffic {
  int64_t in = 0, out = 0;
};

// The ends of messages to and from a central server. The centre is rank 0, or the ranks that only serve.
struct Star {
  int others, centres;
};
Star star_of(const Plan& plan);

// The traffic of this rank in a step of that kind. Its model group may have fewer rows than another. A broadcast and a
// reduce count as their mean, as in bytes_sent().
Traffic traffic(const Plan& plan, StepKind kind, int rank);
int64_t bytes_in(const Plan& plan, StepKind kind);            // bytes sent by each rank, or the mean over all ranks
int64_t bytes_in(const Plan& plan, StepKind kind, int rank);  // what the communicator of the rank counts
int64_t busiest_link(const Plan& plan, StepKind kind);        // the most bytes in one direction of any rank's link
int64_t bytes_per_step(const Plan& plan);  // bytes_in(), averaged over the steps from average_from on
int64_t busiest_link(const Plan& plan);    // averaged in the same way
// Sent by a rank per step: "1.25 MB"; "0.08 MB (mean; the busiest 0.12 MB)".
std::string sent_text(const Plan& plan, int digits);
// The bytes that a rank sends in a step, as MB with this many digits: the mean, and the busiest link if it differs.
std::string sent_text(int64_t mean, int64_t busiest, int digits);

// Bytes of the weights of a rank at this place of its model group, or of the rank with the most. Places differ only in
// a pipeline.
int64_t weight_bytes_per_rank(const Plan& plan, int place = kEveryPlace);
int64_t velocity_bytes_per_rank(const Plan& plan, int place = kEveryPlace);  // momentum, if updates are not sharded
int64_t gradient_bytes_per_rank(const Plan& plan, int place = kEveryPlace);
// Sampled classes on the rank with the most: the packed values of their rows, their numbers, and labels as columns.
int64_t sample_bytes(const Plan& plan);
// Muon's memory: elements for a matrix and what its products make; the most for any matrix of a place; bytes with the
// memory to gather matrices.
int64_t matrix_elements(int64_t rows, int64_t columns);
int64_t most_matrix_elements(const Plan& plan, int place = kEveryPlace);
constexpr int64_t kMatrixSums = 512;  // f64, on a GPU
int64_t matrix_bytes(const Plan& plan, int place = kEveryPlace);
int64_t copy16_bytes_per_rank(const Plan& plan, int place = kEveryPlace);  // bf16 copies of weights
int64_t weight_copy_bytes(const Plan& plan, int place);  // one stash of a stage's weights (Action::Kind::kCopyWeights)

int64_t trained_params(const Plan& plan);  // trained parameter tensors of all layers
int64_t most_step_sums(const Plan& plan);  // the most sums in one call of any layer

// Squares are added up in chunks of this many values (gradient_norms.h).
constexpr int64_t kSquareChunk = 1 << 14;
int64_t norm_chunks(const Plan& plan);  // on the rank with the most
int64_t norm_bytes(const Plan& plan);   // memory of gradient_norms.h on every rank

}  // namespace owt
