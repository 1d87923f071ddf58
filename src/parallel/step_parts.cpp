// Makes the parts of a step; step.cpp runs it.
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>
#include <utility>

#include "src/comm/on_host.h"
#include "src/core/gpus.h"
#include "src/parallel/shared_choices.h"
#include "src/parallel/step.h"
#include "src/plan/back_part.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_updates.h"
#include "src/plan/wire_bytes.h"

namespace owt {
namespace {

// The number of ranks that share a GPU, if there are fewer GPUs than ranks.
int64_t sharing_a_gpu(int ranks) { return find_gpus().list.size() > 1 ? 1 : ranks; }

WeightSync::LayerOf layer_of(RankModel& model) {
  return [&model](int64_t layer) -> Layer& { return model.layer(layer); };
}

// If rows are dealt by shares, or in unequal groups, cuDNN's plans depend on the number of rows. One rank for each
// number then makes the choice.
std::vector<int> first_of_each_size(const Plan& plan, int64_t step_rows) {
  const StepRows rows = rows_of(plan, step_rows);
  if ((plan.request.shares.empty() && rows.alike()) || plan.request.on.device == Device::kCpu) return {};
  std::map<int64_t, int> first;
  for (int rank = 0; rank < plan.ranks(); ++rank) first.try_emplace(rows.of(rank).size(), rank);
  std::vector<int> ranks;
  for (const auto& [size, rank] : first) ranks.push_back(rank);
  return ranks;
}

// The number of steps that the host may be ahead of a GPU: enough to hide its work, few enough to see errors early.
constexpr size_t kAheadOfGpu = 3;

}  // namespace

Step::Step(const Plan& plan, RankModel& model, Optimizer& optimizer, Communicator& comm, Profiler* profiler,
           const Options& options)
    : plan_(plan),
      model_(model),
      optimizer_(optimizer),
      comm_(comm),
      profiler_(profiler),
      options_(options),
      stream_(plan.request.on.device),
      groups_(plan, comm),
      place_(plan.place_of(comm.rank())),
      front_sync_(make_front()),
      dense_sync_(make_dense_sync(plan, layer_of(model), groups_)),
      beside_(plan.request.on.device, Priority::kLow),
      block_({static_cast<int64_t>(sizeof(Block))}, DType::kU8, plan.request.on.device),
      slots_(plan.request.on.device == Device::kCpu ? static_cast<size_t>(1 + steps_apart(plan)) : kAheadOfGpu),
      recorder_(slots_.size(), profiler) {
  OWT_CHECK(!options.logits || !plan.sharded_loss, "no rank sees whole logits");
  moves_ = moves();
  if (plan.of_step.averages != kNoTransfer) average_.emplace(plan, layer_of(model), groups_.world());
  model.allocate(plan.request.on);
  sums_ = block_part(offsetof(Block, sums), DType::kF64, kStepSums);
  bad_layer_ = block_part(offsetof(Block, bad_layer), DType::kI32, 1);
  share_ = block_part(offsetof(Block, share), DType::kF64, 1);
  kept_ = block_part(offsetof(Block, kept), DType::kF64, 1);
  others_sums_ = Tensor({kLossSums}, DType::kF64, plan.request.on.device);
  for (Slot& slot : slots_) slot.host = Tensor::shared_with(plan.request.on.device, block_.shape(), DType::kU8);
  for (const Param* param : model.params()) {
    if (param->role != ParamRole::kTrained) continue;
    const std::vector<Tensor> averaged = average_ ? average_->states(*param) : std::vector<Tensor>();
    if (!averaged.empty()) optimizer.keep_states_in(*param, averaged);
    optimizer.states(*param, updated(*param));
  }
  if (plan.request.ema_every > 0) ema_.emplace(model.params());
  const bool sums = most_step_sums(plan) > 0;
  if (sums && plan.ranks_of(plan.front_group()) > 1)
    front_sums_.emplace(plan, place_, groups_.of(plan.front_group()), profiler);
  if (sums && plan.replicas() > 1) dense_sums_.emplace(plan, place_, groups_.replicas(), profiler);
  if (plan.has_norms()) optimizer.go_by(norms_.emplace(plan, model, *front_sync_, place_, options.norms));
  if (profiler) profiler->use_stream(stream_);
}

std::unique_ptr<WeightSync> Step::make_front() {
  return make_front_sync(plan_, layer_of(model_), groups_, [&] {
    OWT_CHECK(options_.make_served && options_.updates, "servers update the weights");
    return options_.make_served(plan_, layer_of(model_), groups_.wire(Group::kWorld), optimizer_, options_.seed);
  });
}

void Step::go_on_after(const Updates& updates) {
  updates_ = updates;
  front_sync_->go_on_after(updates.front);
}

Tensor Step::part_of(const Tensor& block, size_t offset, DType dtype, int64_t elements) {
  return block.part(static_cast<int64_t>(offset), {elements * size_of(dtype)}).viewed_as(dtype);
}

void Step::RowIndexes::give_to(Pass& pass) const {
  pass.rows = host;
  pass.device_rows = device.defined() ? device.data<int64_t>() : nullptr;
}

Step::RowIndexes Step::rows(std::vector<int64_t> indexes) const {
  RowIndexes made{std::move(indexes), {}};
  const auto count = static_cast<int64_t>(made.host.size());
  if (stream_.device() == Device::kCpu || count == 0) return made;
  Tensor here({count}, DType::kI64);
  std::copy(made.host.begin(), made.host.end(), here.data<int64_t>());
  made.device = here.to(stream_.device());
  return made;
}

Step::Dense::Dense(Step& step, int64_t rows, const Dense* lender)
    : tape(step.plan_, step.model_, rows, step.groups_.wire(Group::kModel), step.profiler_,
           lender ? &lender->tape : nullptr) {
  if (step.plan_.has_loss(step.place_)) loss.emplace(step.plan_, rows, step.groups_.model(), step.profiler_);
}

Step::Bound::Bound(Step& step, int64_t step_rows)
    : evaluation(owt::evaluation(step.plan_, step_rows, step.place_)),
      own_rows(rows_of(step.plan_, step_rows).of(step.comm_.rank()).size()) {
  const Plan& plan = step.plan_;
  const int rank = step.comm_.rank();
  Communicator& group = step.groups_.wire(Group::kModel);
  for (const KindOfStep& each : kinds_of_steps(plan))
    training[each.kind] = owt::training(plan, step_rows, each.kind, step.place_);
  if (plan.in_stages()) links.emplace(plan, step_rows, rank, group);
  const StepRows rows = rows_of(plan, step_rows);
  int64_t most = 0;
  for (int s = 0; s < rows.slices(); ++s) most = std::max(most, rows.slice(s).of(rank).size());
  step.front(most);  // first, so that tapes of smaller micro-batches use its memory
  for (int s = 0; s < rows.slices(); ++s) {
    SliceOfStep& slice = slices.emplace_back(step.slice_of(rows.slice(s)));
    slice.mine = {slice.mine.begin - rows.of(rank).begin, slice.mine.end - rows.of(rank).begin};
    const auto alike = static_cast<size_t>(rows.first_alike(s, rank));
    slice.seam = alike < slices.size() - 1 ? slices[alike].seam : make_seam(plan, rows.slice(s), rank, group);
    if (plan.of_step.labels == kNoTransfer) continue;
    slice.labels = alike < slices.size() - 1 ? slices[alike].labels
                                             : std::make_shared<StepLabels>(plan, rows.slice(s), rank, group);
  }
}

// Without the parts that equal micro-batches share.
Step::SliceOfStep Step::slice_of(const StepRows& rows) {
  const int rank = comm_.rank();
  SliceOfStep slice{.mine = rows.of(rank), .round_rows = round_rows(plan_, rows)};
  slice.front = front(slice.mine.size());
  std::vector<int64_t> indexes(static_cast<size_t>(slice.mine.size()));
  std::iota(indexes.begin(), indexes.end(), slice.mine.begin);
  slice.front_rows = this->rows(std::move(indexes));
  for (const Round& round : rows.rounds(rank)) slice.dense_rows.push_back(this->rows(rows.indexes(round, rank)));
  return slice;
}

std::shared_ptr<Tape> Step::front(int64_t rows) {
  const auto made = front_.find(rows);
  if (made != front_.end()) return made->second;
  const Tape* lender = front_.empty() || front_.rbegin()->first < rows ? nullptr : front_.rbegin()->second.get();
  auto tape =
      std::make_shared<Tape>(model_.front(), rows, plan_.request.on, profiler_, Tape::Scratch::kOwn, false, lender);
  tape->forget_in_evaluation();
  return front_[rows] = std::move(tape);
}

// GPU kernels need images aligned to 16 bytes. Images of odd size may not be aligned.
Tensor Step::images_of(SliceOfStep& slice, const Tensor& of_batch) const {
  constexpr uintptr_t kAlignment = 16;
  const Tensor images = of_batch.rows(slice.mine.begin, slice.mine.end);
  if (stream_.device() == Device::kCpu || reinterpret_cast<uintptr_t>(images.raw()) % kAlignment == 0) return images;
  if (!slice.aligned_images.defined() || slice.aligned_images.shape() != images.shape())
    slice.aligned_images = Tensor(images.shape(), images.dtype(), images.device());
  slice.aligned_images.copy_from(images, stream_);
  return slice.aligned_images;
}

Step::Bound& Step::bound(int64_t step_rows) {
  return bound_.try_emplace({step_rows, comm_.rank()}, *this, step_rows).first->second;
}

const Step::Bound* Step::made(int64_t step_rows) const {
  const auto found = bound_.find({step_rows, comm_.rank()});
  return found == bound_.end() ? nullptr : &found->second;
}

Step::Dense& Step::dense(int64_t rows, int tape) {
  std::map<int64_t, Dense>& all = dense_[tape];
  const Dense* lender = all.empty() || all.rbegin()->first < rows ? nullptr : &all.rbegin()->second;
  return all.try_emplace(rows, *this, rows, lender).first->second;
}

Step::Dense& Step::dense_of(int round, const SliceOfStep& slice) {
  const auto rows = static_cast<int64_t>(slice.dense_rows[static_cast<size_t>(round)].host.size());
  return dense(rows, round % tapes(plan_, place_));
}

// The dense batch has arrived by a transfer, or is made here.
void Step::begin_round(int round, Running& now) {
  const RowIndexes& rows = now.slice->dense_rows[static_cast<size_t>(round)];
  rows.give_to(now.dense_pass);
  if (plan_.in_stages()) return begin_micro_batch(round, now);
  if (!plan_.split()) return;
  if (plan_.layer(plan_.boundary).transfers.input == kNoTransfer) {
    now.slice->seam->start(round, now.slice->front->output(), stream_);
    now.dense_batch = now.slice->seam->wait(round, stream_);
  }
  dense_of(round, now).tape.begin_forward(now.dense_batch);
}

void Step::begin_micro_batch(int batch, Running& now) {
  StageLinks& links = *now.bound.links;
  const Slice rows = links.rows(batch);
  links.begin(now.slice->front->output());
  now.labels = now.batch.labels.rows(rows.begin, rows.end);
  now.dense_batch = links.input(batch);
  dense_of(batch, now).tape.begin_forward(now.dense_batch);
}

const Tensor& Step::logits(int round, Running& now) {
  return plan_.split() ? dense_of(round, now).tape.output() : now.slice->front->output();
}

bool Step::wants_copies(Mode mode) const {
  return mode == Mode::kTrain && !copies_ && plan_.in_stages() && copies_weights(plan_.request.pipeline.schedule);
}

// Makes as many stashes as a full step needs; smaller steps have fewer mini-batches.
void Step::make_copies() {
  std::vector<Param*> trained = model_.params();
  std::erase_if(trained, [](const Param* param) { return param->role != ParamRole::kTrained; });
  copies_.emplace(trained, weight_copies(training(plan_, plan_.request.step_rows, place_)), optimizer_);
}

// All running steps must end first, for two reasons. Choosing algorithms uses memory that running steps use too. Ranks
// of a host prepare in turn, and freeing memory may wait for a GPU, which must not wait for a collective of a rank
// whose turn has not come.
void Step::prepare(int64_t step_rows, Mode mode) {
  const bool learns = mode == Mode::kTrain, copies = wants_copies(mode);
  const Bound* const before = made(step_rows);
  if (before && (before->learns || !learns) && !copies) return;
  on_all_hosts(comm_, [&] { stream_.synchronize(); });
  try {
    on_all_hosts(comm_, [&] {
      bind_alike(
          [&] {
            Bound& b = bound(step_rows);
            prepare(b, learns && !b.learns);
            if (copies) make_copies();
            b.learns = b.learns || learns;
          },
          first_of_each_size(plan_, step_rows));
    });
  } catch (const OutOfMemory& e) {
    report_out_of_memory(e, step_rows);
  }
}

// Prepares the largest tapes first, so that smaller ones use their memory.
void Step::prepare(Bound& bound, bool backward) {
  std::set<std::pair<int64_t, int>, std::greater<>> sizes;
  for (const SliceOfStep& slice : bound.slices)
    for (size_t round = 0; round < slice.dense_rows.size(); ++round)
      sizes.emplace(slice.dense_rows[round].host.size(), static_cast<int>(round) % tapes(plan_, place_));
  for (const auto& [rows, tape] : sizes) {
    Dense& behind = dense(rows, tape);
    if (backward) behind.tape.prepare_backward(wants_input_gradient(plan_, place_));
  }
  for (const SliceOfStep& slice : bound.slices)
    if (backward) slice.front->prepare_backward(false);
}

// If the micro-batches prefer different layouts, the images stay plain, which all accept.
std::optional<ImageLayout> Step::wanted_images(int64_t step_rows) const {
  const Bound* const bound = made(step_rows);
  if (!bound) return {};
  const auto wanted = bound->slices.front().front->wanted_images();
  for (const SliceOfStep& slice : bound->slices)
    if (slice.mine.size() > 0 && slice.front->wanted_images() != wanted) return {};
  return wanted;
}

void Step::feed_from(BatchSource& batches) const {
  batches.lay_out([this](int64_t step_rows) { return wanted_images(step_rows); });
}

// A graph has no separate times for collectives. Bf16 transport uses its buffers in rotation, so a recorded collective
// could depend on one before the recording.
bool Step::records() const {
  const bool timed = profiler_ && profiler_->in_step();
  const bool collectives = options_.record_collectives && comm_.could_record() && !plan_.request.half_wire && !timed;
  return options_.graphs && !options_.logits && stream_.device() == Device::kCuda && (comm_.records() || collectives);
}

// One of the ranks that see the same rows counts them. The others still need memory for their sums.
Tensor& Step::my_sums() {
  if (counts_rows(plan_, comm_.rank())) return sums_;
  others_sums_.zero(stream_);
  return others_sums_;
}

// A single rank need not add its sums to others; they go to the host from here.
LossFollowUp Step::after_loss(const Running& now, const Dense& dense) const {
  LossFollowUp then{forgets(now.front_pass) ? std::vector<Watched>{} : now.slice->front->watched(0), bad_layer_};
  for (Watched& one : dense.tape.watched()) then.watched.push_back(std::move(one));
  if (!alone()) return then;
  then.sums_for_host = part_of(now.slot.host, offsetof(Block, sums), DType::kF64, kLossSums);
  then.first_for_host = part_of(now.slot.host, offsetof(Block, bad_layer), DType::kI32, 1);
  return then;
}

void Step::hand_out(const Tensor& logits, const RowIndexes& rows) const {
  if (options_.logits && !rows.host.empty() && counts_rows(plan_, comm_.rank()))
    options_.logits(logits, rows.host, stream_);
}

Slice Step::updated(const Param& param) const { return front_sync_->updated(param); }

// The number of earlier updates, if an update follows each round that has rows.
int Step::updates_before(int round, const Running& now) const {
  int updates = 0;
  for (const SliceOfStep& slice : now.bound.slices) {
    const bool ends = &slice == now.slice;
    const auto rows = slice.round_rows.begin(), end = ends ? rows + round : slice.round_rows.end();
    updates += static_cast<int>(std::count_if(rows, end, [](int64_t each) { return each > 0; }));
    if (ends) break;
  }
  return updates;
}

// In the back part the dense layers have a rate of their own, and possibly an update after every round.
Optimizer::Rates Step::rates_of(const Action& action, const Running& now) const {
  const Block& block = now.slot.block();
  if (!plan_.split() || action.layers.begin < plan_.boundary)
    return {block.front, block_part(offsetof(Block, front), DType::kF64, StepRates::kNumbers)};
  return {block.back, block_part(offsetof(Block, back), DType::kF64, StepRates::kNumbers),
          action.round == kOwnRows ? 0 : updates_before(action.round, now)};
}

// A rank without rows in a local step counts it as other ranks do.
void Step::count_updates(const Bound& bound) {
  const bool every_round = plan_.split() && plan_.request.dense_update == DenseUpdate::kRound;
  int64_t rounds = 0;
  for (const SliceOfStep& slice : bound.slices)
    rounds += std::count_if(slice.round_rows.begin(), slice.round_rows.end(), [](int64_t each) { return each > 0; });
  ++updates_.front;
  updates_.back += every_round ? rounds : 1;
}

// A profiled step runs everything on one stream, so that its parts add up to its total.
const Stream& Step::stream_of(const Action& action) const {
  return action.beside && !(profiler_ && profiler_->in_step()) ? beside_ : stream_;
}

// Without rows nothing is updated. The next gradient must not be added to an old one that may still be in memory.
void Step::leave(const Slice& layers) {
  for (int64_t i = layers.begin; i < layers.end; ++i)
    for (Param* param : model_.layer(i).params()) param->grad_is_zero = true;
}

// In a step that updates, this gradient has no memory.
TakeGradient Step::leave_in_pieces(Param& weight) {
  if (!weight.grad.defined()) weight.grad = Tensor(weight.shape());
  return [to = weight.grad.data()](int64_t first, int64_t count, const float* gradient) {
    std::copy_n(gradient, count, to + first);
  };
}

// On a GPU, one launch for all parameters. A parameter without gradient memory has already been updated piece by piece.
void Step::update(const Slice& layers, const Optimizer::Rates& rates, double gradient_scale, const Stream& stream) {
  std::vector<Param*> together;
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    std::vector<Param*> params = model_.layer(i).params();
    std::erase_if(params, [](const Param* param) { return !param->keeps_grad || !owt::learns(param->role); });
    if (stream.device() == Device::kCuda)
      together.insert(together.end(), params.begin(), params.end());
    else
      update(params, model_.layer(i).name(), rates, gradient_scale, stream);
  }
  update(together, "weights", rates, gradient_scale, stream);
}

void Step::update(std::span<Param* const> params, const std::string& name, const Optimizer::Rates& rates,
                  double gradient_scale, const Stream& stream) {
  if (params.empty()) return;
  const Profiler::Scope scope(profiler_, name, Phase::kUpdate);
  optimizer_.update(params, rates, gradient_scale, stream);
}

void Step::report_out_of_memory(const OutOfMemory& e, int64_t step_rows) const {
  if (e.total_bytes == 0 || !options_.what_fits) throw e;
  constexpr int64_t kReserve = 1 << 30;  // for the driver, and for workspaces of libraries
  const int64_t memory = (e.total_bytes - kReserve) / sharing_a_gpu(comm_.ranks());
  throw OutOfMemory(concat(e.what(), "; ", options_.what_fits(plan_, memory, step_rows)), e.asked_bytes, e.free_bytes,
                    e.total_bytes);
}

}  // namespace owt
