#include "src/parallel/step_program.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "src/plan/back_part.h"
#include "src/plan/beside_trial.h"
#include "src/plan/plan_rows.h"

namespace owt {
namespace {

std::vector<int64_t> indexes_of(const Slice& rows) {
  std::vector<int64_t> indexes(static_cast<size_t>(rows.size()));
  std::iota(indexes.begin(), indexes.end(), rows.begin);
  return indexes;
}

int64_t count_with_rows(std::span<const int64_t> rounds) {
  return std::ranges::count_if(rounds, [](int64_t rows) { return rows > 0; });
}

}  // namespace

BackPart::BackPart(const Plan& plan, RankModel& model, int64_t rows, const Groups& groups, Profiler* profiler,
                   const BackPart* lender)
    : tape(plan, model, rows, groups.wire(Group::kModel), profiler, lender ? &lender->tape : nullptr) {
  if (plan.has_loss(groups.model().rank())) loss.emplace(plan, rows, groups.model(), profiler);
}

std::shared_ptr<Tape> StepTapes::front(int64_t rows) {
  const auto made = front_.find(rows);
  if (made != front_.end()) return made->second;
  const Tape* lender = front_.empty() || front_.rbegin()->first < rows ? nullptr : front_.rbegin()->second.get();
  auto tape =
      std::make_shared<Tape>(model_.front(), rows, plan_.request.on, profiler_, Tape::Scratch::kOwn, false, lender);
  tape->forget_in_evaluation();
  return front_[rows] = std::move(tape);
}

BackPart& StepTapes::back(int64_t rows, int round) {
  std::map<int64_t, BackPart>& all = back_[round % tapes(plan_, place_)];
  const BackPart* lender = all.empty() || all.rbegin()->first < rows ? nullptr : &all.rbegin()->second;
  return all.try_emplace(rows, plan_, model_, rows, groups_, profiler_, lender).first->second;
}

RowIndexes::RowIndexes(std::vector<int64_t> indexes, Device on) : host(std::move(indexes)) {
  if (on == Device::kCpu || host.empty()) return;
  Tensor here({size()}, DType::kI64);
  std::ranges::copy(host, here.data<int64_t>());
  device = here.to(on);
}

void RowIndexes::give_to(Pass& pass) const {
  pass.rows = host;
  pass.device_rows = device.defined() ? device.data<int64_t>() : nullptr;
}

Tensor MicroBatch::images_of(const Tensor& of_batch, const Stream& stream) {
  constexpr uintptr_t kAlignment = 16;
  const Tensor images = of_batch.rows(mine.begin, mine.end);
  if (stream.device() == Device::kCpu || reinterpret_cast<uintptr_t>(images.raw()) % kAlignment == 0) return images;
  if (!aligned_images.defined() || aligned_images.shape() != images.shape())
    aligned_images = Tensor(images.shape(), images.dtype(), images.device());
  aligned_images.copy_from(images, stream);
  return aligned_images;
}

StepProgram::StepProgram(const Plan& plan, const Groups& groups, StepTapes& tapes, int64_t step_rows, int rank)
    : plan_(plan),
      tapes_(tapes),
      place_(groups.model().rank()),
      step_rows_(step_rows),
      evaluation_(owt::evaluation(plan, step_rows, place_)) {
  for (const KindOfStep& each : kinds_of_steps(plan))
    training_[each.kind] = owt::training(plan, step_rows, each.kind, place_);
  const StepRows rows = rows_of(plan, step_rows);
  const Slice own = rows.of(rank);
  own_rows_ = own.size();
  int64_t most = 0;
  for (int s = 0; s < rows.slices(); ++s) most = std::max(most, rows.slice(s).of(rank).size());
  tapes.front(most);  // first, so that tapes of smaller micro-batches use its memory
  const Device on = plan.request.on.device;
  Communicator& group = groups.wire(Group::kModel);
  for (int s = 0; s < rows.slices(); ++s) {
    const StepRows part = rows.slice(s);
    const Slice mine = part.of(rank);
    MicroBatch micro{.mine = {mine.begin - own.begin, mine.end - own.begin},
                     .front = tapes.front(mine.size()),
                     .front_rows = {indexes_of(mine), on},
                     .round_rows = owt::round_rows(plan, part)};
    for (const Round& round : part.rounds(rank)) micro.back_rows.emplace_back(part.indexes(round, rank), on);
    if (const int alike = rows.first_alike(s, rank); alike < s) {
      micro.seam = micro_batch(alike).seam;
      micro.labels = micro_batch(alike).labels;
    } else {
      micro.seam = make_seam(plan, part, rank, group);
      if (plan.of_step.labels != kNoTransfer) micro.labels = std::make_shared<StepLabels>(plan, part, rank, groups);
    }
    micro_batches_.push_back(std::move(micro));
  }
}

const std::vector<Action>& StepProgram::training(StepKind kind, bool beside) {
  if (beside) return training_.at(kind);
  const auto [found, is_new] = behind_.try_emplace(kind);
  if (is_new) {
    Plan plan = plan_;
    plan.request.beside_from = kNeverBeside;
    found->second = owt::training(plan, step_rows_, kind, place_);
  }
  return found->second;
}

BackPart& StepProgram::back(const MicroBatch& micro, int round) const {
  return tapes_.back(micro.back_rows[static_cast<size_t>(round)].size(), round);
}

// Prepares the largest tapes first, so that smaller ones use their memory.
void StepProgram::prepare(bool learns) {
  const bool backward = learns && !learns_;
  std::set<std::pair<int64_t, int>, std::greater<>> sizes;
  for (const MicroBatch& micro : micro_batches_)
    for (size_t round = 0; round < micro.back_rows.size(); ++round)
      sizes.emplace(micro.back_rows[round].size(), static_cast<int>(round) % tapes(plan_, place_));
  for (const auto& [rows, tape] : sizes) {
    BackPart& back = tapes_.back(rows, tape);
    if (backward) back.tape.prepare_backward(wants_input_gradient(plan_, place_));
  }
  for (const MicroBatch& micro : micro_batches_)
    if (backward) micro.front->prepare_backward(false);
  learns_ = learns_ || learns;
}

int64_t StepProgram::rounds_with_rows() const {
  int64_t rounds = 0;
  for (const MicroBatch& micro : micro_batches_) rounds += count_with_rows(micro.round_rows);
  return rounds;
}

int StepProgram::updates_before(int round, const MicroBatch& micro) const {
  int64_t updates = 0;
  for (const MicroBatch* each = micro_batches_.data(); each != &micro; ++each)
    updates += count_with_rows(each->round_rows);
  return static_cast<int>(updates + count_with_rows(std::span(micro.round_rows).first(static_cast<size_t>(round))));
}

// If the micro-batches prefer different layouts, the images stay plain, which all accept.
std::optional<ImageLayout> StepProgram::wanted_images() const {
  const auto wanted = micro_batches_.front().front->wanted_images();
  for (const MicroBatch& micro : micro_batches_)
    if (micro.mine.size() > 0 && micro.front->wanted_images() != wanted) return {};
  return wanted;
}

// On the CPU the images are valid until the caller has this result. On a GPU later images may have overwritten them,
// but in layers before the first one that learns these pass the same weights.
int32_t StepProgram::bad_layer(Pass pass, const Tensor& images, int32_t first) {
  const auto look = [&](auto& tape, const RowIndexes& rows) {
    rows.give_to(pass);
    first = std::min(first, tape.find_bad_layer(pass).value_or(first));
  };
  for (MicroBatch& micro : micro_batches_) {
    micro.front->begin_forward(micro.images_of(images, *pass.stream));
    look(*micro.front, micro.front_rows);
    for (size_t round = 0; round < micro.back_rows.size(); ++round)
      look(back(micro, static_cast<int>(round)).tape, micro.back_rows[round]);
  }
  return first;
}

StepProgram& StepPrograms::of(int64_t step_rows) {
  const int rank = groups_.world().rank();
  return programs_.try_emplace({step_rows, rank}, plan_, groups_, tapes_, step_rows, rank).first->second;
}

const StepProgram* StepPrograms::made(int64_t step_rows) const {
  const auto found = programs_.find({step_rows, groups_.world().rank()});
  return found == programs_.end() ? nullptr : &found->second;
}

}  // namespace owt
