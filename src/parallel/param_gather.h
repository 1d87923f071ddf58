// Brings parameter-shaped tensors to the host, or gathers them for a file, split or not. It does so in pieces, so that
// no rank ever holds a whole split tensor.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "layers/base/param.h"
#include "src/comm/communicator.h"
#include "src/core/profiler.h"
#include "src/plan/rank_model.h"

namespace owt {

// What each rank of a group holds of a tensor with a parameter's full_shape. elements: a range of its elements in
// memory order; or columns: a range of the elements of every row. Ranks beyond the end of the list hold nothing.
struct Spread {
  std::vector<Slice> elements, columns;

  int ranks() const { return static_cast<int>(std::max(elements.size(), columns.size())); }
};
// What the ranks of a model group hold of a parameter. If all ranks hold all of it, rank 0 counts as the only one.
Spread spread_of(const LayerPlan& layer, const Param& param);

// Collective over `comm`. mine: what this rank holds, on the device. On rank 0 `write` gets the whole tensor in file
// order, in pieces of some whole rows (layers/base/param.h); the other ranks only send. The host waits for it.
void gather_parameter(const Spread& spread, const Param& param, const Tensor& mine, Communicator& comm,
                      const std::function<void(std::span<const float>)>& write);

// Gives all ranks the whole of matrices (Param::is_matrix) that they update in parts.
class MatrixGather {
 public:
  // For the matrices of the plan that have a matrix_block(). comm: of the ranks of matrix_group(). It must outlive
  // this, and so must the model and the profiler, which may be null.
  MatrixGather(const Plan& plan, const RankModel& model, Communicator& comm, Profiler* profiler);

  bool gathers(const Param& param) const { return spread_of_.contains(&param); }
  float* mine() { return mine_.data(); }  // memory for this rank's part of a matrix
  // Collective; waits. whole: receives the matrix from the parts in mine(). Returns the sum of all ranks' `number`s,
  // added in rank order from f32.
  double run(const Param& param, double number, float* whole, const Stream& stream);

 private:
  std::unordered_map<const Param*, Spread> spread_of_;
  Communicator& comm_;
  Profiler* profiler_;
  std::string name_;      // the transfer's
  Tensor mine_, blocks_;  // a block of this rank, and of all ranks
};

// Calls visit(first, rows) for all rows of a tensor on this rank, in pieces on the host; `first`: the number of their
// first row. The host waits for copies from a GPU, where the tensor must not be in use.
template <class Visit>
void for_each_piece(const Tensor& tensor, const Visit& visit) {
  for (const Slice& rows : pieces_of(tensor.shape(), {0, tensor.shape().rows()}))
    visit(rows.begin, tensor.rows(rows.begin, rows.end).to(Device::kCpu));
}

}  // namespace owt
