#include "src/parallel/param_gather.h"
#include "src/comm/on_host.h"
#include "src/plan/plan_updates.h"

#include <algorithm>

namespace owt {
namespace {

// Some rows of a tensor, and what the ranks hold of them.
struct Piece {
  const Spread& spread;
  const Shape& whole;
  Slice rows;

  int64_t width() const { return whole.row_elements(); }
  Slice elements() const { return {rows.begin * width(), rows.end * width()}; }
  Slice part_of(int rank) const;  // relative to the elements that the rank holds
  void place(int rank, const Tensor& part, Tensor& whole_rows) const;
};

Slice Piece::part_of(int rank) const {
  const auto r = static_cast<size_t>(rank);
  if (!spread.columns.empty()) return {rows.begin * spread.columns[r].size(), rows.end * spread.columns[r].size()};
  const Slice held = spread.elements[r], part = common_part(held, elements());
  return {part.begin - held.begin, part.end - held.begin};
}

void Piece::place(int rank, const Tensor& part, Tensor& whole_rows) const {
  const auto r = static_cast<size_t>(rank);
  if (spread.columns.empty()) {
    const int64_t first = std::max(spread.elements[r].begin, elements().begin) - elements().begin;
    std::copy_n(part.data(), part.elements(), whole_rows.data() + first);
    return;
  }
  const Slice columns = spread.columns[r];
  for (int64_t row = 0; row < rows.size(); ++row)
    std::copy_n(part.data() + row * columns.size(), columns.size(), whole_rows.data() + row * width() + columns.begin);
}

// Returns the piece on rank 0, an undefined tensor elsewhere. held: this rank's elements. others: memory for a part of
// another rank.
//
// It uses broadcasts, not sends to rank 0: a chain of ranks forwards one part while the next parts follow. This takes
// little longer than rank 0 needs to receive them.
Tensor bring(const Piece& piece, const Tensor& held, const Tensor& others, Communicator& comm) {
  Tensor whole_rows = comm.rank() == 0 ? Tensor(piece.whole.with_rows(piece.rows.size())) : Tensor();
  for (int r = 0; r < piece.spread.ranks(); ++r) {
    const Slice at = piece.part_of(r);
    if (at.size() == 0 || (r == 0 && comm.rank() != 0)) continue;
    Tensor part = comm.rank() == r ? held.part(at.begin, {at.size()}) : others.part(0, {at.size()});
    if (r > 0) comm.broadcast(part, part, r, {}).wait();
    if (comm.rank() == 0) piece.place(r, part.to(Device::kCpu), whole_rows);
  }
  return whole_rows;
}

Tensor file_order_of(const Param& param, const Tensor& whole_rows) {
  Tensor ordered(whole_rows.shape());
  param.to_file_order(whole_rows.shape().rows(), whole_rows.data(), ordered.data());
  return ordered;
}

}  // namespace

Spread spread_of(const LayerPlan& layer, const Param& param) {
  const Shape& whole = param.full_shape;
  if (layer.place > 0) {  // in a pipeline stage without rank 0
    Spread spread{std::vector<Slice>(static_cast<size_t>(layer.place) + 1), {}};
    spread.elements.back() = {0, whole.elements()};
    return spread;
  }
  const bool split = layer.layout == Layout::kFeature;
  if (split && param.columns) return {{}, layer.inputs};
  if (!split || layer.by_inputs()) return {{{0, whole.elements()}}, {}};
  Spread spread;
  for (const Slice& rows : layer.parts)
    spread.elements.push_back({rows.begin * whole.row_elements(), rows.end * whole.row_elements()});
  return spread;
}

void gather_parameter(const Spread& spread, const Param& param, const Tensor& mine, Communicator& comm,
                      const std::function<void(std::span<const float>)>& write) {
  const bool writes = comm.rank() == 0, alone = spread.ranks() == 1;
  if (alone && !writes) return;
  const Shape& whole = param.full_shape;
  const Tensor held = mine.reshaped({mine.elements()});
  Tensor others;
  if (!alone) on_all_hosts(comm, [&] { others = Tensor({largest_piece(whole)}, DType::kF32, mine.device()); });
  for (const Slice& rows : pieces_of(whole, {0, whole.rows()})) {
    const Tensor whole_rows = bring({spread, whole, rows}, held, others, comm);
    if (!writes) continue;
    const Tensor ordered = file_order_of(param, whole_rows);
    write({ordered.data(), static_cast<size_t>(ordered.elements())});
  }
  if (!alone) on_all_hosts(comm, [&] { others = Tensor(); });
}

MatrixGather::MatrixGather(const Plan& plan, const RankModel& model, Communicator& comm, Profiler* profiler)
    : comm_(comm), profiler_(profiler), name_(plan.transfer(plan.of_step.matrices).name) {
  int64_t most = 0;
  for (int64_t i = 0; i < std::ssize(plan.layers); ++i) {
    const std::vector<Param*> params = model.layer(i).params();
    for (size_t p = 0; p < params.size(); ++p) {
      const int64_t block = matrix_block(plan, i, p);
      if (block == 0) continue;
      most = std::max(most, block);
      spread_of_[params[p]] = plan.updates() == Updates::kShares ? Spread{updated_parts(plan, i, p), {}}
                                                                 : spread_of(plan.layer(i), *params[p]);
    }
  }
  mine_ = Tensor({most});
  blocks_ = Tensor({comm.ranks() * most});
}

double MatrixGather::run(const Param& param, double number, float* whole, const Stream& stream) {
  const Profiler::Scope scope(profiler_, name_, Phase::kTransfer);
  const Spread& spread = spread_of_.at(&param);
  const bool by_columns = !spread.columns.empty();
  const std::vector<Slice>& parts = by_columns ? spread.columns : spread.elements;
  const int64_t width = param.full_shape.row_elements(), rows = param.full_shape.rows();
  int64_t longest = 0;
  for (const Slice& part : parts) longest = std::max(longest, part.size() * (by_columns ? rows : 1));
  mine_.data()[longest] = static_cast<float>(number);
  const int64_t block = longest + 1;
  Tensor all = blocks_.part(0, {comm_.ranks() * block});
  stream.wait(comm_.all_gather(mine_.part(0, {block}), all, stream.record()));
  stream.synchronize();
  double sum = 0;
  const float* from = all.data();
  for (const Slice& part : parts) {
    if (by_columns)
      for (int64_t row = 0; row < rows; ++row)
        std::copy_n(from + row * part.size(), part.size(), whole + row * width + part.begin);
    else
      std::copy_n(from, part.size(), whole + part.begin);
    sum += from[longest];
    from += block;
  }
  return sum;
}

}  // namespace owt
