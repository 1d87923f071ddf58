// `owt time`: steps on made-up images, so that neither data nor a loader is needed.
#include <algorithm>

#include "src/comm/profiled.h"
#include "src/comm/threads.h"
#include "src/core/files.h"
#include "src/core/log.h"
#include "src/core/philox.h"
#include "src/train/run.h"
#include "src/train/step.h"

namespace owt {
namespace {

constexpr int kUntimedSteps = 3;  // the first ones make primitives and choose algorithms

Batch made_up_batch(const Model& model, const Slice& rows, int64_t step_rows) {
  Batch batch;
  batch.images = Tensor(model.input.batch_of(rows.size()));
  batch.labels = Tensor({rows.size()}, DType::kI32);
  batch.step_rows = step_rows;
  const Philox random(1, RandomStream::kSynthetic);
  const int64_t each = model.input.elements();
  for (int64_t i = 0; i < batch.images.elements(); ++i)
    batch.images.data()[i] = random.uniform(static_cast<uint64_t>(rows.begin * each + i)) - 0.5f;
  for (int64_t i = 0; i < rows.size(); ++i)
    batch.labels.data<int32_t>()[i] = static_cast<int32_t>((rows.begin + i) % model.classes);
  return batch;
}

// The share of a layer's outputs that rank 0 computes.
double share_of_rank_0(const LayerPlan& layer) {
  if (layer.layout != Layout::kFeature) return 1;
  return static_cast<double>(layer.parts.front().size()) / static_cast<double>(layer.out.elements());
}

}  // namespace

std::vector<LayerFacts> layer_facts(const Plan& plan) {
  const StepRows rows(plan.rounds_strategy(), plan.ranks(), plan.request.step_rows);
  std::vector<LayerFacts> all;
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerPlan& at = plan.layers[i];
    const bool front = static_cast<int64_t>(i) < plan.boundary;
    const double share = share_of_rank_0(at);
    const double worked = static_cast<double>(front ? rows.of(0).size() : plan.request.step_rows);
    LayerFacts facts{at.name, at.type, at.out, 0, 0, 0, 0};
    facts.forward_flops = at.flops_per_row * worked * share;
    facts.backward_flops = facts.forward_flops * (i == 0 ? 1 : 2);  // the first layer needs no gradient of the images
    facts.activation_bytes = static_cast<int64_t>(4 * worked * share * static_cast<double>(at.out.elements()));
    facts.weight_bytes = static_cast<int64_t>(share * static_cast<double>(at.weight_bytes));
    all.push_back(std::move(facts));
  }
  return all;
}

TimingReport time_steps(const Settings& settings, const TimeOptions& options) {
  const Plan plan = make_plan(settings.model, settings.plan_request());
  ConvChoices::process().set_mode(settings.run.conv_algorithm);
  const StepRows rows(plan.rounds_strategy(), plan.ranks(), plan.request.step_rows);
  std::vector<Profiler> profilers(static_cast<size_t>(plan.ranks()));
  run_ranks(plan.ranks(), threads_per_rank(options.threads, plan.ranks()), [&](Communicator& inner) {
    Profiler& profiler = profilers[static_cast<size_t>(inner.rank())];
    ProfiledCommunicator comm(inner, &profiler);
    RankModel model(settings.model, plan, comm.rank());
    Sgd sgd(settings.optimizer);
    Step step(plan, model, sgd, comm, &profiler, settings.run.seed);
    model.initialize(settings.run.seed);
    const Batch batch = made_up_batch(settings.model, rows.of(comm.rank()), plan.request.step_rows);
    profiler.keep_spans(!options.trace.empty());
    for (int64_t i = -kUntimedSteps; i < options.steps; ++i) {
      profiler.enable(i >= 0);
      profiler.begin_step();
      step.train(batch, i + kUntimedSteps, {1e-6, 1e-6},
                 false);  // a rate that leaves the made-up task finite
      profiler.end_step();
    }
  });
  for (const std::string& line : ConvChoices::process().report()) log_info("convolution {}", line);
  std::vector<const Profiler*> views;
  for (const Profiler& profiler : profilers) views.push_back(&profiler);
  if (!options.trace.empty()) write_file_atomically(options.trace, trace_json(views));
  return make_report(views, layer_facts(plan), plan.request.step_rows);
}

}  // namespace owt
