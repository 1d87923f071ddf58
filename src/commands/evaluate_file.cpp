#include <filesystem>
#include <optional>
#include <vector>

#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/commands/measured_shares.h"
#include "src/commands/run.h"
#include "src/files/checkpoint_files.h"
#include "src/system/log.h"
#include "src/train/alike.h"
#include "src/train/data_identity.h"
#include "src/train/evaluate.h"
#include "src/train/memory_check.h"

namespace owt {
namespace {

// The shares that were measured for the weights' run; empty: none.
std::vector<double> shares_beside(const std::string& weights) {
  const std::string folder = std::filesystem::path(weights).parent_path().string();
  return is_checkpoint(folder) ? load_checkpoint_state(folder).measured_shares : std::vector<double>();
}

}  // namespace

Evaluation evaluate_file(Settings settings, const EvalOptions& options) {
  const EvaluationRequest& request = options.request;
  start_together(
      "eval", settings,
      {option_fact("split", name_of(request.split)), option_fact("views", request.views.name()),
       option_is_given("predictions", !request.predictions.empty()),
       option_is_given("confusion", !request.confusion.empty()), option_is_given("per-class", request.per_class)});
  check_outputs({request.predictions, request.confusion, options.json});
  Job job;
  job.settings = std::move(settings);
  job.settings.ema = {};  // evaluation does not update averages
  job.settings.loss = job.settings.loss.in_evaluation();
  job.settings.distill = {};
  job.settings.run.canonical = false;
  // The number of rows must not depend on batch norm's groups; no result depends on it.
  if (DataSettings& data = job.settings.data; data.batch_per_rank > 0)
    data.batch = data.batch_per_rank * job.settings.computing_ranks(), data.batch_per_rank = 0;
  job.weights = options.weights;
  const Session session(job.settings, options.threads, options.weights);
  log_device(job.settings);
  const std::string shares = settle_shares(job.settings, session, shares_beside(options.weights));
  if (!shares.empty()) log_info("{}", shares);
  job.plan = job.settings.plan_to_run();
  const std::string data = data_folder(job.settings.data, options.data);
  const RunFacts known = facts_of_run(job.settings, options.run_folder);
  open_data(job, data, request.split, known);
  if (!options.data.empty() && !job.train && job.settings.data.format != "shards")
    tell_of_other_statistics(job.settings, data, known);
  check_same_data(job, data);
  if (request.split == Split::kValidation) check_held_out(job, options.weights, data);
  const bool on_host = job.plan.request.on.device == Device::kCpu;  // otherwise the memory of GPUs is checked
  check_memory(job.plan, {Mode::kEval, kLoadedBatches, [&](const Plan& plan, int rank) {
                            return on_host ? prediction_bytes(plan, request, *job.images(request.split), rank) : 0;
                          }});
  return evaluate_weights(job, request, session);
}

}  // namespace owt
