#include "src/parallel/seam.h"

#include <algorithm>

#include "src/core/canonical.h"
#include "src/core/conversions.h"
#include "src/core/poison.h"
#include "src/parallel/column_exchange.h"
#include "src/parallel/feature_gather.h"
#include "src/parallel/stage_links.h"
#include "src/plan/back_part.h"

namespace owt {
namespace {

// Data that all kinds of seam need.
struct Crossing {
  const LayerPlan& first;  // the first dense layer
  std::vector<Round> rounds;
  int64_t own_rows;
  bool learns;  // the gradient of these rows is used
  Compute on;
  Communicator& comm;

  Tensor activations(int64_t rows) const {
    return Tensor(first.in.batch_of(rows), activation_type(on.precision), on.device);
  }
  // For a gradient that the ranks sum.
  Tensor sums(int64_t rows) const { return Tensor(first.in.batch_of(rows), input_sum_type(on), on.device); }
  // Where the sum for `home` arrives: `home`, or memory of sums that are rounded to it.
  Tensor sums_of(const Tensor& home, int64_t rows) const { return on.canonical() ? sums(rows) : home; }
  const Round& round(int r) const { return rounds[static_cast<size_t>(r)]; }
  size_t places() const { return std::min<size_t>(rounds.size(), kRoundsAtOnce); }
  int64_t most_rows() const {
    int64_t most = 0;
    for (const Round& each : rounds) most = std::max(most, rows_of(each));
    return most;
  }
};

// home = the sums, if they are not in its memory.
void round_home(const Tensor& sums, Tensor home, const Stream& stream) {
  if (sums.dtype() == DType::kF64) round_to_f32(Cpu{}, sums, home, stream);
}

// Nothing is split.
class OwnRows : public Seam {
 public:
  OwnRows() : Seam(Tensor()) {}
  void start(int, const Tensor& mine, const Stream&) override { mine_ = mine; }
  Tensor wait(int, const Stream&) override { return mine_; }
  Tensor gradient(int) override { fail("nothing is split"); }
  void start_back(int, const Stream&) override {}
  void wait_back(int, const Stream&) override {}

 private:
  Tensor mine_;
};

// All ranks of the group have the same rows.
class ReplicatedRows : public Seam {
 public:
  explicit ReplicatedRows(const Crossing& over)
      : Seam(over.learns ? over.activations(over.own_rows) : Tensor()), comm_(over.comm) {
    if (over.learns) sums_ = over.sums_of(home_, over.own_rows);
  }

  void start(int, const Tensor& mine, const Stream& stream) override {
    mine_ = mine;
    poison(home_, stream);
    poison(sums_, stream);
  }
  Tensor wait(int, const Stream&) override { return mine_; }
  Tensor gradient(int) override { return sums_; }
  void start_back(int, const Stream& stream) override { summed_ = comm_.all_reduce(sums_, stream.record()); }
  void wait_back(int, const Stream& stream) override {
    stream.wait(summed_);
    round_home(sums_, home_, stream);
  }

 private:
  Communicator& comm_;
  Tensor mine_, sums_;
  Event summed_;
};

// All ranks of the group have the same rows, and each takes its own columns.
class ReplicatedColumns : public Seam {
 public:
  explicit ReplicatedColumns(const Crossing& over)
      : Seam(Tensor()),
        columns_(over.first.inputs, over.own_rows, over.on, over.comm),
        gradient_({over.own_rows, over.first.inputs.at(static_cast<size_t>(over.comm.rank())).size()},
                  activation_type(over.on.precision), over.on.device) {
    home_ = columns_.gathered().reshaped(over.first.in.batch_of(over.own_rows));
  }

  void start(int, const Tensor& mine, const Stream& stream) override { batch_ = columns_.take(mine, stream); }
  Tensor wait(int, const Stream&) override { return batch_; }
  Tensor gradient(int) override { return gradient_; }
  void start_back(int, const Stream& stream) override { columns_.start_gather(gradient_, stream); }
  void wait_back(int, const Stream& stream) override { columns_.finish_gather(stream); }

 private:
  FeatureGather columns_;
  Tensor batch_, gradient_;  // rows x this rank's columns
};

// Each round has a slot; the next round but one reuses it.
class RoundsInPlaces : public Seam {
 public:
  explicit RoundsInPlaces(Crossing over)
      : Seam(over.activations(over.own_rows)),
        over_(std::move(over)),
        slots_(over_.places()),
        sums_(over_.sums_of(home_, over_.own_rows)) {
    for (Slot& slot : slots_) {
      slot.batch = over_.activations(over_.most_rows());
      slot.gradient = over_.sums(over_.most_rows());
    }
  }

  Tensor gradient(int r) override { return rows(slot(r).gradient, r); }

 protected:
  struct Slot {
    Tensor batch, gradient;  // rows of the round x features
    // If a round is uneven, padded: ranks x longest x features, longest x features. On the way back they are sums,
    // which have their own memory if they have another type.
    Tensor blocks, part, sum_blocks, sum_part;
    Event gathered, scattered;
  };

  Slot& slot(int r) { return slots_[static_cast<size_t>(r) % slots_.size()]; }
  // The memory for the batch of the round. The old content, and in the first round the last gradients, may no longer be
  // read.
  Tensor begin(int r, const Stream& stream) {
    if (r == 0) poison(home_, stream);
    if (r == 0) poison(sums_, stream);
    poison(slot(r).batch, stream);
    return rows(slot(r).batch, r);
  }
  Tensor rows(const Tensor& tensor, int r) const { return tensor.rows(0, rows_of(over_.round(r))); }

  Crossing over_;
  std::vector<Slot> slots_;
  Tensor sums_;  // Crossing::sums_of(home_)
};

// A round consists of one rank's rows.
class BroadcastRows : public RoundsInPlaces {
 public:
  using RoundsInPlaces::RoundsInPlaces;

  void start(int r, const Tensor& mine, const Stream& stream) override {
    Tensor batch = begin(r, stream);
    slot(r).gathered = over_.comm.broadcast(is_root(r) ? mine : Tensor(), batch, root(r), stream.record());
  }
  Tensor wait(int r, const Stream& stream) override {
    stream.wait(slot(r).gathered);
    return rows(slot(r).batch, r);
  }
  void start_back(int r, const Stream& stream) override {
    Tensor home = is_root(r) ? sums_ : Tensor();
    slot(r).scattered = over_.comm.reduce(gradient(r), home, root(r), stream.record());
  }
  void wait_back(int r, const Stream& stream) override {
    stream.wait(slot(r).scattered);
    if (is_root(r)) round_home(sums_, home_, stream);
    poison(slot(r).gradient, stream);
  }

 private:
  int root(int r) const { return over_.round(r).front().rank; }
  bool is_root(int r) const { return root(r) == over_.comm.rank(); }
};

// A round consists of some rows of every rank.
class GatheredRows : public RoundsInPlaces {
 public:
  explicit GatheredRows(Crossing over) : RoundsInPlaces(std::move(over)) {
    int64_t padded = 0;
    for (int r = 0; r < static_cast<int>(over_.rounds.size()); ++r) padded = std::max(padded, even(r) ? 0 : longest(r));
    for (Slot& slot : slots_) {
      if (padded == 0) continue;
      slot.blocks = over_.activations(padded * over_.comm.ranks());
      slot.part = over_.activations(padded);
      slot.blocks.zero();
      slot.part.zero();
      slot.sum_blocks = over_.sums_of(slot.blocks, padded * over_.comm.ranks());
      slot.sum_part = over_.sums_of(slot.part, padded);
      slot.sum_blocks.zero();
      slot.sum_part.zero();
    }
  }

  void start(int r, const Tensor& mine, const Stream& stream) override {
    const Tensor from = mine.rows(own(r).begin, own(r).end);
    Tensor batch = begin(r, stream), part = padded(slot(r).part, r), blocks = padded_blocks(slot(r).blocks, r);
    if (!even(r)) part.rows(0, own(r).size()).copy_from(from, stream);
    slot(r).gathered = over_.comm.all_gather(even(r) ? from : part, even(r) ? batch : blocks, stream.record());
  }
  Tensor wait(int r, const Stream& stream) override {
    stream.wait(slot(r).gathered);
    Tensor batch = rows(slot(r).batch, r);
    for_each_block(slot(r).blocks, r,
                   [&](Tensor block, const Slice& at) { batch.rows(at.begin, at.end).copy_from(block, stream); });
    return batch;
  }
  void start_back(int r, const Stream& stream) override {
    const Tensor from = gradient(r);
    Tensor home = own_part(sums_, r), part = padded(slot(r).sum_part, r);
    for_each_block(slot(r).sum_blocks, r,
                   [&](Tensor block, const Slice& at) { block.copy_from(from.rows(at.begin, at.end), stream); });
    slot(r).scattered = over_.comm.reduce_scatter(even(r) ? from : padded_blocks(slot(r).sum_blocks, r),
                                                  even(r) ? home : part, stream.record());
  }
  void wait_back(int r, const Stream& stream) override {
    stream.wait(slot(r).scattered);
    if (!even(r)) own_part(sums_, r).copy_from(slot(r).sum_part.rows(0, own(r).size()), stream);
    round_home(own_part(sums_, r), own_part(home_, r), stream);
    poison(slot(r).gradient, stream);
  }

 private:
  Tensor padded(const Tensor& part, int r) const { return even(r) ? Tensor() : part.rows(0, longest(r)); }
  Tensor padded_blocks(const Tensor& blocks, int r) const {
    return even(r) ? Tensor() : blocks.rows(0, longest(r) * over_.comm.ranks());
  }
  Tensor own_part(const Tensor& of_own_rows, int r) const { return of_own_rows.rows(own(r).begin, own(r).end); }
  // This rank's rows in the round, as indexes in its local batch.
  Slice own(int r) const {
    for (const RowRange& range : over_.round(r))
      if (range.rank == over_.comm.rank()) return {range.begin, range.end};
    return {0, 0};
  }
  int64_t longest(int r) const {
    int64_t most = 0;
    for (const RowRange& range : over_.round(r)) most = std::max(most, range.size());
    return most;
  }
  bool even(int r) const { return longest(r) * over_.comm.ranks() == rows_of(over_.round(r)); }
  // Calls visit for every rank's rows of an uneven round, with their padded block and their place in the batch.
  template <class Visit>
  void for_each_block(const Tensor& blocks, int r, const Visit& visit) const {
    if (even(r)) return;
    int64_t row = 0;
    for (const RowRange& range : over_.round(r)) {
      const int64_t first = range.rank * longest(r);
      visit(blocks.rows(first, first + range.size()), Slice{row, row + range.size()});
      row += range.size();
    }
  }
};

// Each rank gets its columns of all ranks' rows, in a single round.
class ExchangedColumns : public Seam {
 public:
  explicit ExchangedColumns(const Crossing& over)
      : Seam(over.activations(over.own_rows)), exchange_(rows_of_ranks(over), over.first.inputs, over.on, over.comm) {}

  void start(int, const Tensor& mine, const Stream& stream) override { exchange_.start_forward(mine, stream); }
  Tensor wait(int, const Stream& stream) override { return exchange_.finish_forward(stream); }
  Tensor gradient(int) override { return exchange_.gradient(); }
  void start_back(int, const Stream& stream) override { exchange_.start_backward(stream); }
  void wait_back(int, const Stream& stream) override { exchange_.finish_backward(home_, stream); }

 private:
  static std::vector<int64_t> rows_of_ranks(const Crossing& over) {
    std::vector<int64_t> rows;
    for (const RowRange& range : over.round(0)) rows.push_back(range.size());
    return rows;
  }

  ColumnExchange exchange_;
};

}  // namespace

std::shared_ptr<Seam> make_seam(const Plan& plan, const StepRows& rows, int rank, Communicator& comm) {
  if (plan.in_stages()) return std::make_shared<StageLinks>(plan, rows, rank, comm);
  if (!seam_of(plan)) return std::make_shared<OwnRows>();
  const LayerPlan& first = *seam_of(plan);
  const Crossing over{first, rows.rounds(rank), rows.of(rank).size(), plan.front_learns(), plan.request.on, comm};
  const TransferId there = first.transfers.input;
  if (there == kNoTransfer && first.by_inputs()) return std::make_shared<ReplicatedColumns>(over);
  if (there == kNoTransfer) return std::make_shared<ReplicatedRows>(over);
  switch (plan.transfer(there).collective) {
    case Collective::kBroadcast:
      return std::make_shared<BroadcastRows>(over);
    case Collective::kAllToAll:
      return std::make_shared<ExchangedColumns>(over);
    default:
      return std::make_shared<GatheredRows>(over);
  }
}

}  // namespace owt
