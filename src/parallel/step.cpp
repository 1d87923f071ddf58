// Starts and finishes steps; several may be under way.
#include "src/parallel/step.h"

#include <algorithm>
#include <cmath>

#include "src/comm/on_host.h"
#include "src/core/gpus.h"
#include "src/parallel/shared_choices.h"
#include "src/parallel/stage_links.h"
#include "src/plan/plan_rows.h"
#include "src/plan/plan_updates.h"
#include "src/system/activity.h"
#include "src/system/log.h"

namespace owt {
namespace {

// The number of ranks that share a GPU, if there are fewer GPUs than ranks.
int64_t sharing_a_gpu(int ranks) { return find_gpus().list.size() > 1 ? 1 : ranks; }

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

bool updates_beside(const Plan& plan) {
  return std::ranges::any_of(training(plan, plan.request.step_rows), &Action::beside);
}

// The number of steps that the host may be ahead of a GPU: enough to hide its work, few enough to see errors early.
constexpr size_t kAheadOfGpu = 3;

}  // namespace

Step::Step(const Plan& plan, RankModel& model, Optimizer& optimizer, Communicator& comm, Profiler* profiler,
           const Options& options)
    : plan_(plan),
      options_(options),
      stream_(plan.request.on.device),
      groups_(plan, comm),
      weights_(plan, model, optimizer, groups_, profiler, options),
      programs_(plan, model, groups_, profiler),
      runner_(plan, groups_, weights_, profiler, options_.logits, stream_),
      slots_(plan.request.on.device == Device::kCpu ? static_cast<size_t>(1 + steps_apart(plan)) : kAheadOfGpu),
      recorder_(slots_.size(), profiler) {
  for (Slot& slot : slots_)
    slot.host = StepBlock(Tensor::shared_with(plan.request.on.device, StepBlock::shape(), DType::kU8));
  if (profiler) profiler->use_stream(stream_);
  if (options.choose_beside && records() && runner_.alone() && updates_beside(plan)) trial_.emplace(slots_.size());
}

// All running steps must end first, for two reasons. Choosing algorithms uses memory that running steps use too. Ranks
// of a host prepare in turn, and freeing memory may wait for a GPU, which must not wait for a collective of a rank
// whose turn has not come. Routes are opened before that by all ranks at once, because NCCL's are collective.
void Step::prepare(int64_t step_rows, Mode mode) {
  const bool learns = mode == Mode::kTrain;
  const StepProgram* const before = programs_.made(step_rows);
  if (before && (before->learns() || !learns)) return;
  on_all_hosts(comm(), [&] { stream_.synchronize(); });
  connect_stages(plan_, rows_of(plan_, step_rows), comm().rank(), groups_.wire(Group::kModel));
  try {
    on_all_hosts(comm(), [&] {
      bind_alike(
          [&] {
            programs_.of(step_rows).prepare(learns);
            // A full step needs the most stashes; smaller steps have fewer mini-batches.
            if (learns) weights_.make_copies(training(plan_, plan_.request.step_rows, groups_.model().rank()));
          },
          first_of_each_size(plan_, step_rows));
    });
  } catch (const OutOfMemory& e) {
    report_out_of_memory(e, step_rows);
  }
}

std::optional<ImageLayout> Step::wanted_images(int64_t step_rows) const {
  const StepProgram* const program = programs_.made(step_rows);
  return program ? program->wanted_images() : std::nullopt;
}

void Step::feed_from(BatchSource& batches) const {
  batches.lay_out([this](int64_t step_rows) { return wanted_images(step_rows); });
}

// A graph has no separate times for collectives. Bf16 transport uses its buffers in rotation, so a recorded collective
// could depend on one before the recording.
bool Step::records() const {
  const bool collectives =
      options_.record_collectives && comm().could_record() && !plan_.request.bf16_transport && !runner_.profiles();
  return options_.graphs && !options_.logits && stream_.device() == Device::kCuda && (comm().records() || collectives);
}

void Step::start_training(const Batch& batch, int64_t step, const Rates& rates, bool stop,
                          std::optional<StepKind> kind) {
  Pass pass;
  pass.step = step;
  start(batch, pass, kind.value_or(kind_of(plan_, step)), rates, stop);
}

void Step::start_evaluation(const Batch& batch) {
  Pass pass;
  pass.mode = Mode::kEval;
  start(batch, pass, StepKind::kSynchronous, {}, false);
}

void Step::start(const Batch& batch, Pass pass, StepKind kind, const Rates& rates, bool stop) {
  OWT_CHECK(started_ - finished_ < slots_.size(), "too many steps under way");
  prepare(batch.step_rows, pass.mode);
  const StepProgram& its = programs_.of(batch.step_rows);
  const size_t number = started_ % slots_.size();
  Slot& slot = slots_[number];
  StepValues& values = slot.host.values() = {};
  values.step = pass.step;
  values.front = {rates.front, rates.front_biases, static_cast<double>(updates_.front), rates.sgd_share};
  values.back = {rates.back, rates.back_biases, static_cast<double>(updates_.back), rates.sgd_share};
  values.kept = rates.kept;
  if (kind != StepKind::kSynchronous) weights_.average()->count_rows(its.own_rows(), batch.step_rows);
  if (kind == StepKind::kAveraging) values.share = weights_.average()->take_share();
  values.sums[kStopSum] = stop ? 1 : 0;
  values.bad_layer = static_cast<int32_t>(plan_.layers.size());
  pass.seed = options_.seed;
  pass.step_rows = batch.step_rows;
  pass.stream = &stream_;
  pass.device_step = runner_.block().step().data<int64_t>();

  const bool recorded = records();
  const bool tried =
      chooses() && pass.mode == Mode::kTrain && batch.step_rows == plan_.request.step_rows && !runner_.profiles();
  const StepRecorder::Weights weights{kind, ema() && rates.kept < 1,
                                      tried ? trial_->next() : !trial_ || trial_->beside()};
  const auto queue_it = [&] { queue(batch, pass, weights, slot); };
  const Event begin = tried ? stream_.record() : Event();
  bool replayed = false;
  if (recorded)
    replayed = recorder_.run(batch, pass.mode, weights, number, stream_, queue_it);
  else
    queue_it();
  if (pass.mode == Mode::kTrain) count_updates(its);
  slot.images = batch.images;
  const Event end = stream_.record();
  slot.done = recorded ? comm().watched(end) : end;
  slot.pass = pass;
  slot.tried = tried && replayed ? std::optional(Tried{weights.beside, begin, end}) : std::nullopt;
  ++started_;
}

void Step::queue(const Batch& batch, const Pass& pass, const StepRecorder::Weights& weights, Slot& slot) {
  runner_.block().copy_from(slot.host, stream_);
  StepState now{.batch = batch,
                .program = programs_.of(batch.step_rows),
                .kind = weights.kind,
                .learns = pass.mode == Mode::kTrain,
                .averages = weights.averages,
                .updates_beside = weights.beside,
                .host = slot.host,
                .front_pass = pass,
                .back_pass = pass};
  runner_.run(now);
  if (!runner_.alone()) slot.host.copy_from(runner_.block(), stream_);
}

// A rank without rows in a local step counts it as other ranks do.
void Step::count_updates(const StepProgram& program) {
  const bool every_round = plan_.split() && plan_.request.dense_update == DenseUpdate::kRound;
  ++updates_.front;
  updates_.back += every_round ? program.rounds_with_rows() : 1;
}

StepResult Step::finish() {
  OWT_CHECK(under_way(), "no step is under way");
  Slot& slot = slots_[finished_ % slots_.size()];
  {
    const Waits waits(WaitsFor::kDevice);
    slot.done.wait();
  }
  ++finished_;
  if (const auto& tried = slot.tried; tried && trial_->add(tried->beside, tried->end.ms_since(tried->begin)))
    log_info("{}", trial_->text());
  const StepValues& values = slot.host.values();
  const Pass& pass = slot.pass;
  const ResultSums sums = pass.mode == Mode::kTrain ? weights_.front().result(values.sums) : values.sums;
  StepResult result = step_result(sums.data(), values.sampled_classes);
  result.gradient_norm = values.gradient_norm;
  if (!std::isfinite(result.sums.loss))
    report_bad_loss(result, pass, programs_.of(pass.step_rows).bad_layer(pass, slot.images, values.bad_layer));
  slot.images = {};
  return result;
}

StepResult Step::train(const Batch& batch, int64_t step, const Rates& rates, bool stop, std::optional<StepKind> kind) {
  start_training(batch, step, rates, stop, kind);
  return finish();
}

StepResult Step::evaluate(const Batch& batch) {
  start_evaluation(batch);
  return finish();
}

void Step::settle() {
  OWT_CHECK(!under_way(), "a step is under way");
  if (const auto updates = weights_.front().settle(stream_)) updates_ = {*updates, *updates};
}

void Step::average() {
  OWT_CHECK(!under_way(), "a step is under way");
  WeightAverage* const average = weights_.average();
  if (!average || !average->is_due()) return;
  StepBlock& host = slots_[started_ % slots_.size()].host;
  host.values() = {};
  host.values().share = average->take_share();
  runner_.block().copy_from(host, stream_);
  average->run(runner_.block().share(), stream_);
  stream_.synchronize();
}

void Step::take(Step& before) {
  const int64_t updates = weights_.front().take(before.weights_.front(), stream_);
  resume_after({updates, updates});
}

void Step::resume_after(const Updates& updates) {
  updates_ = updates;
  weights_.front().resume_after(updates.front);
}

void Step::report_out_of_memory(const OutOfMemory& e, int64_t step_rows) const {
  if (e.total_bytes == 0 || !options_.what_fits) throw e;
  constexpr int64_t kReserve = 1 << 30;  // for the driver, and for workspaces of libraries
  const int64_t memory = (e.total_bytes - kReserve) / sharing_a_gpu(comm().ranks());
  throw OutOfMemory(concat(e.what(), "; ", options_.what_fits(plan_, memory, step_rows)), e.asked_bytes, e.free_bytes,
                    e.total_bytes);
}

void Step::report_bad_loss(const StepResult& result, const Pass& pass, int32_t bad_layer) {
  const std::vector<int32_t> layers = on_host::gather(comm(), std::vector{bad_layer}, stream_.device());
  const int32_t first = *std::min_element(layers.begin(), layers.end());
  const bool none = first == static_cast<int32_t>(plan_.layers.size());
  throw Diverged(
      concat(pass.mode == Mode::kTrain ? concat("step ", pass.step + 1) : std::string("evaluation"), ": the loss is ",
             std::isnan(result.sums.loss) ? "nan" : concat(result.sums.loss), "; ",
             none ? std::string("every layer's output is finite, so it grew in the loss")
                  : concat("the first layer with a value that is not finite is '", plan_.layer(first).name, "'"),
             options_.weights.empty()
                 ? std::string(". Lower the learning rate, add warmup_epochs, or look at the data")
                 : concat("; look at the weights in ", options_.weights, " and at the data's means and scale")));
}

}  // namespace owt
