// The seam between the data-parallel front and the dense layers, for one number of rows per step.
//
//   scheme a, c: kBatch -> kReplicated by all_gather of a round's rows; back by reduce_scatter
//   scheme d:    kBatch -> kFeature by all_to_all where the first dense layer is split by inputs (column_exchange.h)
//   scheme b:    one rank's rows by broadcast; back by reduce
//   mp:          every rank has all rows already; back by all_reduce
//   dp, 1 rank:  nothing travels
// Round r+1 may be gathered before round r is done: there are two slots. Work is queued on the stream given;
// transfers start after what is on it, and it waits for them where their results are needed. Uneven parts are
// padded to the longest for the way.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/comm/communicator.h"
#include "src/core/profiler.h"
#include "src/parallel/column_exchange.h"
#include "src/parallel/groups.h"
#include "src/parallel/plan.h"

namespace owt {

class Boundary {
 public:
  // All three must outlive this; profiler may be null.
  Boundary(const Plan& plan, int64_t step_rows, const Groups& groups, Profiler* profiler);

  int rounds() const { return static_cast<int>(rounds_.size()); }
  const Round& round(int r) const { return rounds_[static_cast<size_t>(r)]; }

  // The labels of this rank's rows (i32); once a step, before labels(). They go where the dense batches go.
  void gather_labels(const Tensor& mine, const Stream& stream);
  // Those of the dense batch of round r; valid until the next labels().
  const Tensor& labels(int r, const Stream& stream);

  // Starts to bring the rows of round r together. mine: the front's output for all of this rank's rows.
  void gather(int r, const Tensor& mine, const Stream& stream);
  // The dense batch of round r, once it is there; valid until gather(r + 2).
  const Tensor& gathered(int r, const Stream& stream);
  // Where the gradient of that batch goes; null when nobody before the boundary learns.
  Tensor* dense_gradient(int r, const Stream& stream);
  // Starts to send the gradient of round r home.
  void scatter(int r, const Stream& stream);
  // After the last round: the gradient of `mine`, complete.
  const Tensor& finish(const Stream& stream);

 private:
  struct Slot {
    Tensor batch, gradient;  // rows of the round x features
    Tensor blocks, part;     // padded: ranks x longest x features, longest x features
    Event gathered, scattered;
    Slice home;  // rows of local_gradient_ the padded part belongs to
    bool unpack_gradient = false;
  };

  bool by_columns() const { return exchange_.has_value(); }
  bool travels() const { return plan_.split(); }
  bool moves_rows() const { return travels() && strategy_ != Strategy::kModelParallel; }  // else a batch is `mine`
  Slot& slot(int r) { return slots_[r % 2]; }
  Tensor activations(int64_t rows) const;
  Slice my_rows(int r) const;    // of this rank in round r, as local rows
  int64_t longest(int r) const;  // rows of the rank with the most
  bool even(int r) const;
  Tensor rows_view(Tensor& tensor, int64_t rows) const { return tensor.rows(0, rows); }
  void settle(Slot& slot, const Stream& stream);  // waits for a gradient under way and puts it in place

  const Plan& plan_;
  Strategy strategy_;
  Communicator& comm_;  // of the model group
  Profiler* profiler_;
  std::string name_, gradient_name_;
  Shape features_;  // of one row
  std::vector<Round> rounds_;
  Slot slots_[2];
  std::optional<ColumnExchange> exchange_;  // of the only round
  Tensor local_gradient_;
  Tensor my_labels_, all_labels_, round_buffer_, round_labels_;  // padded: ranks x most rows of a rank
  Event labels_gathered_;
};

}  // namespace owt
