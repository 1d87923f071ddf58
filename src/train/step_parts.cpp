// What a step is made of; the order in which it runs is in step.cpp.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "src/core/activity.h"
#include "src/core/gpus.h"
#include "src/parallel/memory_need.h"
#include "src/parallel/shared_choices.h"
#include "src/train/step.h"

namespace owt {
namespace {

// Ranks share a GPU where there are fewer than ranks.
int64_t sharing_a_gpu(int ranks) { return find_gpus().list.size() > 1 ? 1 : ranks; }

GradSync::LayerOf layer_of(RankModel& model) {
  return [&model](int64_t layer) -> Layer& { return model.layer(layer); };
}

// Of the front, what is summed over the ranks as it is: nothing where every rank updates a share, or where there are no
// others.
std::span<const Bucket> summed_whole(const Plan& plan) {
  return plan.shares_update() || !plan.sums_gradients(0) ? std::span<const Bucket>() : plan.buckets;
}

// The host may be this many steps ahead of a GPU: enough to hide its work, few enough to hear of trouble soon.
constexpr size_t kAheadOfGpu = 3;

}  // namespace

Step::Step(const Plan& plan, RankModel& model, Sgd& sgd, Communicator& comm, Profiler* profiler, const Options& options)
    : plan_(plan),
      model_(model),
      sgd_(sgd),
      comm_(comm),
      profiler_(profiler),
      options_(options),
      stream_(plan.request.on.device),
      groups_(plan, comm),
      grad_sync_("gradients", summed_whole(plan), layer_of(model), plan.request.on, groups_.wire(plan.front_group()),
                 profiler, plan.copies_gradients() ? &groups_.wire(Group::kModel) : nullptr),
      dense_grad_sync_("dense gradients", plan.back_buckets, layer_of(model), plan.request.on,
                       groups_.wire(Group::kReplicas), profiler),
      beside_(can_update_beside()),
      updates_(plan.request.on.device, Priority::kLow),
      block_({static_cast<int64_t>(sizeof(Block))}, DType::kU8, plan.request.on.device),
      slots_(plan.request.on.device == Device::kCpu ? 1 : kAheadOfGpu) {
  OWT_CHECK(!options.logits || !plan.sharded_loss, "no rank sees whole logits");
  if (plan.shares_update()) {
    const auto update = [this](std::span<const ParamPart> parts, const Stream& stream) {
      const Profiler::Scope scope(profiler_, "weights", Phase::kUpdate);
      sgd_.update(parts, front_rate(), 1, stream);
    };
    sharded_update_.emplace(plan, layer_of(model), groups_.wire(Group::kWorld), update, profiler);
  }
  const int64_t dense = beside_ ? first_dense() : plan.boundary;
  front_layers_ = {0, dense};
  dense_layers_ = {dense, static_cast<int64_t>(plan.layers.size())};
  model.allocate(plan.request.on);
  sums_ = block_part(offsetof(Block, sums), DType::kF64, kStepSums);
  bad_layer_ = block_part(offsetof(Block, bad_layer), DType::kI32, 1);
  others_sums_ = Tensor({kLossSums}, DType::kF64, plan.request.on.device);
  for (Slot& slot : slots_) slot.host = Tensor::shared_with(plan.request.on.device, block_.shape(), DType::kU8);
  for (const Param* param : model.params())
    if (param->role == ParamRole::kTrained) sgd.velocity(*param, updated(*param));
  if (profiler) profiler->use_stream(stream_);
}

Tensor Step::part_of(const Tensor& block, size_t offset, DType dtype, int64_t elements) {
  return block.part(static_cast<int64_t>(offset), {elements * size_of(dtype)}).viewed_as(dtype);
}

void Step::Rows::give_to(Pass& pass) const {
  pass.rows = host;
  pass.device_rows = device.defined() ? device.data<int64_t>() : nullptr;
}

Step::Rows Step::rows(std::vector<int64_t> indexes) const {
  Rows made{std::move(indexes), {}};
  const auto count = static_cast<int64_t>(made.host.size());
  if (stream_.device() == Device::kCpu || count == 0) return made;
  Tensor here({count}, DType::kI64);
  std::copy(made.host.begin(), made.host.end(), here.data<int64_t>());
  made.device = here.to(stream_.device());
  return made;
}

Step::Bound::Bound(Step& step, int64_t step_rows)
    : front(step.model_.front(), step.plan_.rows(step_rows).of(step.comm_.rank()).size(), step.plan_.request.on,
            step.profiler_),
      boundary(step.plan_, step_rows, step.groups_, step.profiler_) {
  const StepRows step_of = step.plan_.rows(step_rows);
  const int rank = step.comm_.rank();
  const Slice mine = step_of.of(rank);
  std::vector<int64_t> indexes(static_cast<size_t>(mine.size()));
  std::iota(indexes.begin(), indexes.end(), mine.begin);
  front_rows = step.rows(std::move(indexes));
  for (int r = 0; r < boundary.rounds(); ++r) dense_rows.push_back(step.rows(step_of.indexes(boundary.round(r), rank)));
  round_rows.assign(dense_rows.size(), 0);
  for (int replica = 0; replica < step.plan_.replicas(); ++replica) {
    const std::vector<Round> rounds = step_of.rounds(replica * step.plan_.model_ranks);
    for (size_t r = 0; r < rounds.size(); ++r) round_rows[r] += rows_of(rounds[r]);
  }
}

Step::Bound& Step::bound(int64_t step_rows) {
  const auto found = bound_.find(step_rows);
  if (found != bound_.end()) return found->second;
  return bound_.try_emplace(step_rows, *this, step_rows).first->second;
}

Step::Dense& Step::dense(int64_t rows) {
  const auto found = dense_.find(rows);
  if (found != dense_.end()) return found->second;
  return dense_
      .try_emplace(rows, Dense{BackTape(plan_, model_, rows, groups_.wire(Group::kModel), profiler_),
                               RankLoss(plan_, rows, groups_.model(), profiler_)})
      .first->second;
}

// Choosing algorithms uses memory that running steps use too. And ranks take turns in it, and freeing memory may wait
// for a GPU, which must not have to wait for a collective of a rank whose turn has not come.
void Step::prepare(int64_t step_rows, Mode mode) {
  const bool learns = mode == Mode::kTrain && plan_.front_learns;
  const auto made = bound_.find(step_rows);
  if (made != bound_.end() && (made->second.learns || !learns)) return;
  stream_.synchronize();
  comm_.meet();
  try {
    bind_alike([&] {
      Bound& b = bound(step_rows);
      for (const Rows& rows : b.dense_rows) dense(static_cast<int64_t>(rows.host.size()));
      if (learns && !b.learns) b.front.prepare_backward(false);
      b.learns = b.learns || learns;
    });
  } catch (const OutOfMemory& e) {
    report_out_of_memory(e, step_rows);
  }
  comm_.meet();
}

std::optional<ImageLayout> Step::wanted_images(int64_t step_rows) const {
  const auto made = bound_.find(step_rows);
  return made == bound_.end() ? std::nullopt : made->second.front.wanted_images();
}

void Step::feed_from(BatchSource& batches) const {
  batches.lay_out([this](int64_t step_rows) { return wanted_images(step_rows); });
}

// Collectives have no times of their own in a graph. And bf16 on the wire takes memory in turns, which lets a recorded
// collective depend on one before the recording.
bool Step::records() const {
  const bool timed = profiler_ && profiler_->in_step();
  const bool collectives = options_.record_collectives && comm_.could_record() && !plan_.request.half_wire && !timed;
  return options_.graphs && !options_.logits && stream_.device() == Device::kCuda && (comm_.records() || collectives);
}

void Step::start(const Batch& batch, Pass pass, const Rates& rates, bool stop) {
  OWT_CHECK(in_flight_.size() < slots_.size(), "too many steps under way");
  prepare(batch.step_rows, pass.mode);
  Slot& slot = slots_[next_slot_];
  next_slot_ = (next_slot_ + 1) % slots_.size();
  Block& block = slot.block();
  block = {};
  block.step = pass.step;
  block.front_rate = rates.front;
  block.back_rate = rates.back;
  block.sums[kStopSum] = stop ? 1 : 0;
  block.bad_layer = static_cast<int32_t>(plan_.layers.size());
  pass.seed = options_.seed;
  pass.step_rows = batch.step_rows;
  pass.stream = &stream_;
  pass.device_step = block_part(offsetof(Block, step), DType::kI64, 1).data<int64_t>();

  host_rates_ = &rates;
  const bool recorded = records();
  if (recorded)
    replay(batch, pass, slot);
  else
    queue_all(batch, pass, slot);
  slot.done = recorded ? comm_.watched(stream_.record()) : stream_.record();
  slot.pass = pass;
  in_flight_.push_back(&slot);
}

void Step::queue_all(const Batch& batch, const Pass& pass, Slot& slot) {
  block_.copy_from(slot.host, stream_);
  queue(batch, pass, slot);
  if (!alone()) slot.host.copy_from(block_, stream_);
}

// The first run of a kind makes what is missing and chooses algorithms; the next ones are recorded, each with its
// slot's memory on the host.
void Step::replay(const Batch& batch, const Pass& pass, Slot& slot) {
  const bool timed = profiler_ && profiler_->in_step();
  const auto [found, first] =
      recorded_.try_emplace({batch.step_rows, batch.images.raw(), batch.labels.raw(),
                             batch.images.shape()[batch.images.shape().rank() - 1], pass.mode, timed},
                            slots_.size());
  if (first) return queue_all(batch, pass, slot);
  Recorded& recorded = found->second[static_cast<size_t>(&slot - slots_.data())];
  if (!recorded.graph.recorded()) {
    if (timed) profiler_->begin_recording();
    recorded.graph = Graph::record(stream_, [&] { queue_all(batch, pass, slot); });
    if (timed) recorded.scopes = profiler_->end_recording();
  }
  recorded.graph.launch(stream_);
  if (timed) profiler_->replayed(recorded.scopes);
}

StepResult Step::finish() {
  OWT_CHECK(!in_flight_.empty(), "no step is under way");
  Slot& slot = *in_flight_.front();
  {
    const Waits waits(WaitsFor::kDevice);
    slot.done.wait();
  }
  in_flight_.pop_front();
  const StepResult result = step_result(slot.block().sums);
  if (!std::isfinite(result.sums.loss)) report_bad_loss(result, slot.pass, slot.block().bad_layer);
  return result;
}

StepResult Step::train(const Batch& batch, int64_t step, const Rates& rates, bool stop) {
  start_training(batch, step, rates, stop);
  return finish();
}

StepResult Step::evaluate(const Batch& batch) {
  start_evaluation(batch);
  return finish();
}

// Of ranks that see the same rows one counts them; the others need a place for their sums all the same.
Tensor& Step::my_sums() {
  if (plan_.counts_rows(comm_.rank())) return sums_;
  others_sums_.zero(stream_);
  return others_sums_;
}

// Of one rank the sums need not be added to others', and go to the host from here.
LossFollowUp Step::after_loss(const Bound& bound, const Dense& dense, const Slot& slot) const {
  LossFollowUp then{bound.front.watched(0), bad_layer_};
  for (Watched& one : dense.tape.watched()) then.watched.push_back(std::move(one));
  if (!alone()) return then;
  then.sums_for_host = part_of(slot.host, offsetof(Block, sums), DType::kF64, kLossSums);
  then.first_for_host = part_of(slot.host, offsetof(Block, bad_layer), DType::kI32, 1);
  return then;
}

void Step::hand_out(const Tensor& logits, const Rows& rows) const {
  if (options_.logits && !rows.host.empty() && plan_.counts_rows(comm_.rank()))
    options_.logits(logits, rows.host, stream_);
}

Slice Step::updated(const Param& param) const {
  return sharded_update_ ? sharded_update_->part_of(param) : Slice{0, param.shape().elements()};
}

Sgd::Rate Step::front_rate() const {
  return {host_rates_->front, block_part(offsetof(Block, front_rate), DType::kF64, 1)};
}

Sgd::Rate Step::dense_rate() const {
  if (!plan_.split()) return front_rate();
  return {host_rates_->back, block_part(offsetof(Block, back_rate), DType::kF64, 1)};
}

// The boundary, or on one rank, where all layers lie before it, a place among them.
int64_t Step::first_dense() const {
  int64_t i = 0;
  while (i < plan_.boundary && model_.layer(i).columns() != Columns::kSplits) ++i;
  return i;
}

// Where the gradients of the dense layers are complete, or on their way, before the layers before them run backward.
bool Step::can_update_beside() const {
  int64_t elements = 0;
  for (int64_t i = first_dense(); i < static_cast<int64_t>(plan_.layers.size()); ++i)
    for (const Param* param : model_.layer(i).params()) elements += param->shape().elements();
  return stream_.device() == Device::kCuda && plan_.request.dense_update == DenseUpdate::kStep &&
         (plan_.split() || !plan_.sums_gradients(0)) && elements >= options_.beside_from;
}

// The gradients of the layer are complete.
void Step::layer_done(int64_t layer) {
  if (layer >= plan_.boundary)
    dense_grad_sync_.layer_done(layer, stream_);
  else if (sharded_update_)
    sharded_update_->layer_done(layer, stream_);
  else
    grad_sync_.layer_done(layer, stream_);
  if (beside_ && layer == dense_layers_.begin) update_beside();
}

// What is queued behind the backward pass of the dense layers reads nothing that their update writes. A step that is
// timed does one thing after the other, so that its parts add up to it.
void Step::update_beside() {
  if (profiler_ && profiler_->in_step()) return update_dense(1, stream_);
  updates_.wait(stream_.record());
  update_dense(1, updates_);
  dense_updated_ = updates_.record();
}

void Step::update_dense(double gradient_scale, const Stream& stream) {
  dense_grad_sync_.finish(stream);
  update(dense_layers_, dense_rate(), gradient_scale, stream);
}

void Step::finish_updates() {
  if (!beside_ && plan_.request.dense_update == DenseUpdate::kStep) update_dense(1, stream_);
  if (sharded_update_) {
    sharded_update_->finish(stream_);
  } else {
    grad_sync_.finish(stream_);
    update(front_layers_, front_rate(), 1, stream_);
  }
  stream_.wait(dense_updated_);
  dense_updated_ = {};
}

// On a GPU one launch for all.
void Step::update(const Slice& layers, const Sgd::Rate& rate, double gradient_scale, const Stream& stream) {
  std::vector<Param*> together;
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    const std::vector<Param*> params = model_.layer(i).params();
    if (stream.device() == Device::kCuda)
      together.insert(together.end(), params.begin(), params.end());
    else
      update(params, model_.layer(i).name(), rate, gradient_scale, stream);
  }
  update(together, "weights", rate, gradient_scale, stream);
}

void Step::update(std::span<Param* const> params, const std::string& name, const Sgd::Rate& rate, double gradient_scale,
                  const Stream& stream) {
  if (params.empty()) return;
  const Profiler::Scope scope(profiler_, name, Phase::kUpdate);
  sgd_.update(params, rate, gradient_scale, stream);
}

void Step::report_out_of_memory(const OutOfMemory& e, int64_t step_rows) const {
  if (e.total_bytes == 0) throw e;
  const MemoryNeed need = memory_need(plan_);
  constexpr int64_t kReserve = 1 << 30;  // the driver's, and workspaces of libraries
  const int64_t fits = need.rows_in((e.total_bytes - kReserve) / sharing_a_gpu(comm_.ranks()));
  const std::string cure = fits > 0 && fits < step_rows
                               ? concat("a step of about ", fits, " images would fit (data.batch is ", step_rows, ")")
                               : concat("the weights with their gradients alone take ", need.weight_bytes >> 20,
                                        " MiB; more workers share the dense layers");
  throw OutOfMemory(concat(e.what(), "; ", cure), e.asked_bytes, e.free_bytes, e.total_bytes);
}

void Step::report_bad_loss(const StepResult& result, const Pass& pass, int32_t bad_layer) {
  const Device device = stream_.device();
  Tensor mine({1}, DType::kI32), all({comm_.ranks()}, DType::kI32, device);
  mine.data<int32_t>()[0] = bad_layer;
  comm_.all_gather(mine.to(device), all, {}).wait();
  const Tensor layers = all.to(Device::kCpu);
  const int32_t first = *std::min_element(layers.data<int32_t>(), layers.data<int32_t>() + comm_.ranks());
  const bool none = first == static_cast<int32_t>(plan_.layers.size());
  throw Diverged(
      concat(pass.mode == Mode::kTrain ? concat("step ", pass.step + 1) : std::string("evaluation"), ": the loss is ",
             result.sums.loss, "; ",
             none ? std::string("every layer's output is finite, so it grew in the loss")
                  : concat("the first layer with a value that is not finite is '",
                           plan_.layers[static_cast<size_t>(first)].name, "'"),
             options_.weights.empty()
                 ? std::string(". Lower the learning rate, add warmup_epochs, or look at the data")
                 : concat("; look at the weights in ", options_.weights, " and at the data's means and scale")));
}

int64_t Step::bytes() const {
  int64_t total = 0;
  for (const auto& [rows, b] : bound_) total += b.front.bytes();
  for (const auto& [rows, d] : dense_) total += d.tape.bytes() + d.loss.dlogits().bytes();
  return total;
}

}  // namespace owt
