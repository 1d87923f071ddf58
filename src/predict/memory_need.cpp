#include "src/predict/memory_need.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "src/core/canonical.h"
#include "src/parallel/star_update.h"
#include "src/plan/back_part.h"
#include "src/plan/loss_stats.h"
#include "src/plan/order.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_updates.h"
#include "src/predict/mirror_need.h"
#include "src/server/parameter_server.h"

namespace owt {

namespace {

// Elements per row in a tape of the layers [begin, end): the kept outputs, two gradients as large as the largest before
// the last output, and the gradients that are kept for updates. The gradient of the last output is the caller's.
int64_t tape_elements(const Plan& plan, int64_t begin, int64_t end) {
  const auto layers = std::span(plan.layers).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  int64_t largest = 0, for_updates = 0;
  bool last = true;
  for (int64_t i = end; i-- > begin;) {
    const LayerPlan& at = plan.layer(i);
    if (i + 1 < end) largest = std::max(largest, at.kept_elements());
    if (!last && multiplies_in_update(plan, i)) for_updates += at.kept_elements();
    last = last && at.in_place;
  }
  return kept_elements(layers) + 2 * largest + for_updates;
}

bool even(const std::vector<Slice>& parts) { return parts.front().size() == parts.back().size(); }

// Elements per row (or pixel) of a transfer between columns and whole rows (feature_gather.h): both sides, and the
// transfer's buffers.
int64_t gather_elements(const std::vector<Slice>& parts) {
  const int64_t widest = parts.front().size();
  return parts.back().end + widest * (std::ssize(parts) + (even(parts) ? 1 : 2));
}

// Elements per row of sums that have memory of their own: this rank's side, and the buffers.
int64_t sum_elements(const LayerPlan& output) {
  const std::vector<Slice>& parts = output.parts;
  return output.pixels_out() * parts.front().size() * (std::ssize(parts) + (even(parts) ? 1 : 2));
}

int64_t gather_elements(const LayerPlan& output) { return output.pixels_out() * gather_elements(output.parts); }

// The memory that the actions of a step hold on a rank; each buffer is counted once. A stage of layers has activations
// for the most rows of any micro-batch or round. Its transfers and the loss are bound to a number of rows, so each
// number has its own. The boundary has a slot for each round under way, and separate slots for micro-batches whose rows
// differ on any rank of the group. Nothing is freed during a step. Weight gradients are counted with the layers.
class Holdings {
 public:
  Holdings(const Plan& plan, const StepRows& rows, int rank)
      : plan_(plan),
        rows_(rows),
        rank_(rank),
        place_(plan.place_of(rank)),
        size_(size_of(activation_type(plan.request.on.precision))),
        sum_size_(size_of(input_sum_type(plan.request.on))) {}

  void add(const Action& action) {
    if (action.slice != slice_) begin_slice(action.slice);
    const int64_t rows = action.round == kOwnRows ? own_rows_ : rounds_[static_cast<size_t>(action.round)].rows;
    if (action.kind == Action::Kind::kForward) add_stage(action.layers.begin, rows, tape_of(action));
    if (action.kind == Action::Kind::kLoss)
      hold(&plan_.of_step.loss_statistics, rows, rows * loss_bytes(), tape_of(action));
    if (action.kind != Action::Kind::kStart) return;
    if (action.transfer == plan_.of_step.labels) hold(&plan_.of_step.labels, alike_, labels_bytes());
    if (const LayerPlan* first = seam_of(plan_); first && action.transfer == first->transfers.input)
      hold(&first->transfers, action.round % kRoundsAtOnce, place_bytes(), alike_);
  }
  int64_t bytes() const { return bytes_ + scratch_; }

 private:
  void begin_slice(int slice) {
    const StepRows rows = rows_.slice(slice);
    slice_ = slice;
    alike_ = rows_.first_alike(slice, rank_);
    own_rows_ = rows.of(rank_).size();
    most_beside_ = rows.most_beside(rank_);
    rounds_ = rows.round_sizes(rank_);
  }

  const LayerPlan& seam() const { return plan_.layer(plan_.boundary); }
  int tape_of(const Action& action) const { return std::max(action.round, 0) % tapes(plan_, place_); }

  void hold(const void* thing, int64_t number, int64_t bytes, int which = 0) {
    if (there_.emplace(thing, number, which).second) bytes_ += bytes;
  }

  // A stage after a transfer of features has the gradient of its input.
  void add_stage(int64_t begin, int64_t rows, int tape) {
    if (begin > 0 && !begins_stage(plan_, begin)) return;
    int64_t end = begin + 1;
    while (end < std::ssize(plan_.layers) && !begins_stage(plan_, end)) ++end;
    const LayerPlan &first = plan_.layer(begin), &last = plan_.layer(end - 1);
    int64_t& most = most_rows_[{begin, tape}];
    bytes_ += size_ * (std::max(most, rows) - most) * tape_elements(plan_, begin, end);
    most = std::max(most, rows);
    int64_t elements = 0;
    if (first.gather_before) elements += gather_elements(plan_.layer(begin - 1));
    if (last.by_inputs()) elements += gather_elements(last.parts);
    const bool has_dx = begin > plan_.back_layers(place_).begin && first.wants_dx;
    const bool sums = first.gather_before && gradient_layout(plan_, begin) == Layout::kPartial;
    if (has_dx)
      hold(&first.wants_dx, rows, rows * (sums ? sum_size_ : size_) * input_of(plan_, begin, 0).elements(), tape);
    if (sums && has_own_sums())
      hold(&first.layout, rows, rows * sum_size_ * sum_elements(plan_.layer(begin - 1)), tape);
    for (int64_t i = begin; i < end; ++i) {
      const LayerPlan& layer = plan_.layer(i);
      scratch_ = std::max(scratch_, rows * layer.scratch_bytes_on_rank());
      int64_t norms = rows + layer.kept_elements();  // sampled classes have an op with norms too
      if (!layer.sampled.empty()) norms += rows + layer.sampled.front();
      if (layer.type == "cosine") hold(&layer.out, rows, 4 * norms, tape);
    }
    hold(&first, rows, size_ * rows * elements, tape);
    if (first.place != kEveryPlace) return hold(&first.in, 0, size_ * links_elements());
    if (begin == plan_.boundary) hold(&first.in, alike_, own_rows_ * home_bytes());
  }

  // Whether sums of gradients of inputs are not in the memory of their result, because they have another type.
  bool has_own_sums() const { return plan_.request.on.canonical(); }

  // Bytes per own row at the boundary: the returned gradient. If all ranks have the rows, each may work on its columns;
  // then the columns' gradient and the buffers to gather it.
  int64_t home_bytes() const {
    if (seam().by_inputs() && seam().transfers.input == kNoTransfer)
      return size_ * (seam().inputs.front().size() + gather_elements(seam().inputs));
    const bool returned = seam().transfers.input != kNoTransfer || seam().wants_dx;
    return returned ? (size_ + (has_own_sums() ? sum_size_ : 0)) * seam().in.elements() : 0;
  }

  // Bytes per row: the gradient of the logits, and the gathered logits or statistics (rank_loss.h).
  int64_t loss_bytes() const {
    const LayerPlan& last = plan_.layers.back();
    const int64_t all = plan_.sharded_loss ? last.parts.front().size() : last.out.elements();
    const int64_t gradient = size_ * (last.sampled.empty() ? all : last.sampled.front());
    if (plan_.sharded_loss) return gradient + 4 * (plan_.model_ranks + 1) * loss_stats(plan_.request.loss);
    const bool gathered = plan_.of_step.logits != kNoTransfer;
    return gradient + (gathered ? size_ * gather_elements(last) : 0);
  }

  int64_t most_rows() const {
    int64_t most = 0;
    for (const StepRows::RoundSize& round : rounds_) most = std::max(most, round.rows);
    return most;
  }
  int64_t labels_bytes() const {  // see step_labels.h
    const LabelGroup gathers = label_group(plan_, rows_.slice(slice_), rank_);
    const int copies = plan_.request.loss.samples() ? 2 : 1;  // with the step's labels, side by side
    const int64_t rows = (copies * gathers.ranks + 1) * gathers.most_rows + most_rows();
    return 4 * plan_.request.loss.label_numbers() * rows;
  }

  // Elements of the messages from and to neighbouring stages (stage_links.h).
  int64_t links_elements() const {
    const Slice here = plan_.back_layers(place_);
    const auto gradients = [](const LayerPlan& first) { return first.wants_dx ? kRoundsAtOnce : 0; };
    const LayerPlan& first = plan_.layer(here.begin);
    int64_t a_row = 0;
    if (place_ > 0) a_row += (tapes(plan_, place_) + 1 + gradients(first)) * first.in.elements();
    if (!plan_.has_loss(place_)) a_row += gradients(plan_.layer(here.end)) * plan_.layer(here.end).in.elements();
    return most_rows() * a_row;
  }

  // Bytes of a round's slot at the boundary (seam.cpp): its rows and their gradient, and padded blocks if rounds are
  // uneven; or the columns that are sent, received and returned.
  int64_t place_bytes() const {
    int64_t padded = 0;
    for (const StepRows::RoundSize& round : rounds_)
      if (round.longest * plan_.model_ranks > round.rows) padded = std::max(padded, round.longest);
    if (seam().by_inputs())
      return size_ * seam().inputs.front().size() *
             (3 * plan_.model_ranks * most_beside_ + (padded > 0 || !even(seam().inputs) ? 2 : 1) * most_rows());
    if (plan_.transfer(seam().transfers.input).collective == Collective::kBroadcast) padded = 0;
    const int64_t blocks = (plan_.model_ranks + 1) * padded;
    return seam().in.elements() *
           (size_ * (most_rows() + blocks) + sum_size_ * (most_rows() + (has_own_sums() ? blocks : 0)));
  }

  const Plan& plan_;
  const StepRows& rows_;
  int rank_, place_;            // among all ranks; in the model group
  int slice_ = -1, alike_ = 0;  // the current micro-batch; the first micro-batch with the same rows
  // In the micro-batch: rows of this rank, the most rows in its model group, and the rounds.
  int64_t own_rows_ = 0, most_beside_ = 0;
  std::vector<StepRows::RoundSize> rounds_;
  int64_t size_, sum_size_;  // bytes of an activation, and of a gradient of an input that ranks sum
  std::set<std::tuple<const void*, int64_t, int>> there_;
  std::map<std::pair<int64_t, int>, int64_t> most_rows_;  // key: first layer of a stage, and tape
  int64_t bytes_ = 0, scratch_ = 0;                       // all tapes share the scratch memory of the largest op
};

// Bytes of images that wait for their step. A GPU has two batches in the network's format (data/two_batches.h), and the
// data they are made from.
int64_t image_bytes(const Plan& plan, int64_t rows) {
  const PlanRequest& request = plan.request;
  const int64_t bytes = rows * plan.layers.front().in.elements() * size_of(activation_type(request.on.precision));
  return request.on.device == Device::kCpu ? bytes : 2 * bytes + rows * request.batch_row_bytes + request.batch_bytes;
}

int64_t state_bytes(const Plan& plan, int place = kEveryPlace) {
  const int states = plan.request.optimizer_states;
  if (!shares_evenly(plan)) return states * velocity_bytes_per_rank(plan, place);
  int64_t bytes = 0;
  for (const Bucket& bucket : plan.buckets) bytes += bucket.elements / updating_ranks(plan) * 4;
  return states * bytes;
}

// Every rank averages all weights that it holds.
int64_t ema_bytes(const Plan& plan, int place = kEveryPlace) {
  return plan.request.ema_every > 0 ? weight_bytes_per_rank(plan, place) : 0;
}

// Gradients received from other ranks, if rank 0 alone updates.
int64_t received_bytes(const Plan& plan) {
  int64_t bytes = 0;
  for (int slot = 0; slot < kStarSlots && plan.updates() == Updates::kFirst; ++slot)
    bytes += (plan.ranks() - 1) * star_slot_elements(plan, slot) * size_of(weight_sum_type(plan.request.on));
  return bytes;
}

bool has_mirror(const Plan& plan) { return plan.request.mirror_every > 0 && plan.request.on.device == Device::kCpu; }

int64_t most_mirror_bytes(const Plan& plan) {
  int64_t most = 0;
  if (has_mirror(plan))
    for (const MirrorNeed& need : mirror_needs(plan)) most = std::max(most, need.held_bytes);
  return most;
}

// On the host a piece of the largest parameter is read, received, converted to memory order and cut; on a GPU it is
// only received.
int64_t piece_bytes(const Plan& plan) {
  int64_t largest = 0;
  for (const LayerPlan& layer : plan.layers)
    for (const Shape& param : layer.params) largest = std::max(largest, largest_piece(param));
  return largest * 4 * (plan.request.on.device == Device::kCpu ? 4 : 1);
}

}  // namespace

int64_t MemoryNeed::bytes(int64_t step_rows) const {
  return weight_bytes + piece_bytes + static_cast<int64_t>(std::ceil(step_row_bytes * static_cast<double>(step_rows)));
}

int64_t MemoryNeed::rows_in(int64_t memory_bytes) const {
  const auto left = static_cast<double>(memory_bytes - weight_bytes - piece_bytes);
  return left <= 0 || step_row_bytes <= 0 ? 0 : static_cast<int64_t>(left / step_row_bytes);
}

namespace {

int64_t copies_bytes(const Plan& plan, const std::vector<Action>& actions, int place) {
  return weight_copies(actions) * weight_copy_bytes(plan, place);
}

}  // namespace

int64_t mirror_bytes(const Plan& plan, int rank) {
  return has_mirror(plan) ? mirror_needs(plan)[static_cast<size_t>(rank)].held_bytes : 0;
}

int64_t step_bytes(const Plan& plan, const std::vector<Action>& actions, int rank) {
  const StepRows rows = rows_of(plan, plan.request.step_rows);
  Holdings holdings(plan, rows, rank);
  for (const Action& action : actions) holdings.add(action);
  return holdings.bytes() + image_bytes(plan, rows.of(rank).size()) + copies_bytes(plan, actions, plan.place_of(rank));
}

int64_t rank_bytes(const Plan& plan, Mode mode, int rank) {
  const int place = plan.place_of(rank);
  const int64_t values = weight_bytes_per_rank(plan, place) + copy16_bytes_per_rank(plan, place);
  if (mode == Mode::kEval) return values + step_bytes(plan, evaluation(plan, plan.request.step_rows, place), rank);
  return values + gradient_bytes_per_rank(plan, place) + state_bytes(plan, place) + ema_bytes(plan, place) +
         norm_bytes(plan) + matrix_bytes(plan, place) + sample_bytes(plan) + mirror_bytes(plan, rank) +
         (rank == 0 ? received_bytes(plan) : 0) + (updates_share(plan, rank) ? server_bytes(plan) : 0) +
         step_bytes(plan, training(plan, plan.request.step_rows, place), rank);
}

namespace {

// In each model group the rank with the most rows needs most; with equal shares it is the first rank. In a pipeline all
// ranks of a group have the same rows, and the list is the list of one place.
int64_t most_step_bytes(const Plan& plan, const std::vector<Action>& actions, int place) {
  const StepRows rows = rows_of(plan, plan.request.step_rows);
  int64_t most = 0;
  for (int first = 0; first < (plan.request.shares.empty() && rows.alike() ? 1 : plan.ranks());
       first += plan.model_ranks) {
    int rank = first + place;
    for (const int64_t most_rows = rows.most_beside(first); rows.of(rank).size() < most_rows;) ++rank;
    most = std::max(most, step_bytes(plan, actions, rank));
  }
  return most;
}

}  // namespace

MemoryNeed memory_need(const Plan& plan, const std::vector<Action>& actions, int place) {
  MemoryNeed need;
  const int64_t copies = copies_bytes(plan, actions, place);
  // Except for stashes, the memory of weights does not depend on the order, so the list does not show it.
  need.weight_bytes = weight_bytes_per_rank(plan) + copy16_bytes_per_rank(plan) + gradient_bytes_per_rank(plan) +
                      state_bytes(plan) + received_bytes(plan) + server_bytes(plan) + copies + ema_bytes(plan) +
                      norm_bytes(plan) + matrix_bytes(plan) + sample_bytes(plan) + most_mirror_bytes(plan);
  need.piece_bytes = piece_bytes(plan);
  need.step_row_bytes =
      static_cast<double>(most_step_bytes(plan, actions, place) - copies) / static_cast<double>(plan.request.step_rows);
  return need;
}

// The stages of a pipeline need different amounts. weight_bytes is always the largest of all stages, except for
// stashes.
MemoryNeed memory_need(const Plan& plan) {
  MemoryNeed most;
  for (int place = 0; place < plan.places(); ++place) {
    const MemoryNeed need = memory_need(plan, training(plan, plan.request.step_rows, place), place);
    if (place == 0 || need.bytes(plan.request.step_rows) > most.bytes(plan.request.step_rows)) most = need;
  }
  return most;
}

}  // namespace owt
