#include "src/recipe/strategy_settings.h"

#include <algorithm>

#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {

void read_pipeline(Config config, const OptimizerSettings& optimizer, ParallelSettings& parallel) {
  PipelineRequest& pipeline = parallel.options.pipeline;
  const std::string schedule = config.word("schedule", name_of(pipeline.schedule), pipeline_schedule_names());
  pipeline.schedule = pipeline_schedule_from(schedule);
  pipeline.micro_batches = static_cast<int>(config.integer("micro_batches", 0, {.low = 0, .high = 1 << 16}));
  pipeline.stages = config.strings("stages");
  config.finish("[pipeline]");
  if (parallel.automatic && updates_each_micro_batch(pipeline.schedule))
    config.error("schedule", concat("strategy 'auto' and schedule = \"", schedule,
                                    "\" do not go together: with an update for every micro-batch the strategies train "
                                    "differently; name one"));
  const bool spectrain =
      pipeline.schedule == PipelineSchedule::kSpecTrain || pipeline.schedule == PipelineSchedule::kSpecTrain2;
  if (spectrain && parallel.strategy == Strategy::kPipeline && !optimizer.predicts())
    config.error("schedule", concat("\"", schedule, "\" predicts weights from sgd's velocity, and the optimizer is ",
                                    optimizer.name(), "; use optimizer.type = \"sgd\" without ",
                                    "momentum_correction, or schedule = \"pipedream\""));
}

namespace {

// Infinity as a TOML number or in quotes.
int64_t read_delay(Config& config) {
  if (config.given("delay") && config.is_infinite("delay")) return kNoBound;
  if (config.is_string("delay") && config.word("delay", {"inf"}) == "inf") return kNoBound;
  return config.integer("delay", 0, {.low = 0, .high = 1 << 16});
}

}  // namespace

// The same names and defaults as `owt simulate`.
void read_server(Config config, const OptimizerSettings& optimizer, ParallelSettings& parallel) {
  ServerRequest& server = parallel.options.server;
  server.rules.delay = read_delay(config);
  server.rules.pushes = config.integer("pushes", server.rules.delay == 0 ? 0 : 1, {.low = 0, .high = 1 << 16});
  server.servers = static_cast<int>(config.integer("servers", 0, {.low = 0, .high = 4095}));
  const bool serves = facts_of(parallel.strategy).updates == Updates::kServers;
  if (serves && server.servers > 0 && server.servers >= parallel.workers)
    config.error("servers", concat("'servers' is ", server.servers, ", and of ", parallel.workers,
                                   parallel.workers == 1 ? " worker" : " workers",
                                   " at least one must compute: the number of workers includes the servers"));
  if (serves && server.servers > 0 && (!parallel.shares.empty() || parallel.measure_shares))
    config.error("servers", "'servers' and parallel.shares do not go together; leave one of them out");
  server.tolerate_loss = config.boolean("tolerate_loss", false);
  if (serves && server.tolerate_loss && server.servers == 0)
    config.error("tolerate_loss", concat("'tolerate_loss' needs separate servers: a lost worker that serves takes its ",
                                         "shard of the weights with it; give servers = 1 or more"));
  try {
    server.filters = filters_from(config.strings("filters"));
    check_filters(server.filters, optimizer);
  } catch (const Error& e) {
    config.error("filters", concat("'filters': ", e.what()));
  }
  config.finish("[ps]");
}

void check_filters(const FilterSettings& filters, const OptimizerSettings& optimizer) {
  if (filters.kkt > 0 && optimizer.l1 == 0)
    fail("filter kkt omits values that an L1 penalty holds at 0, but there is no penalty; give one, ",
         "--set optimizer.type=proximal --set optimizer.l1=0.0001, or take top:P");
}

void make_synchronous(ParallelSettings& parallel) {
  if (parallel.strategy == Strategy::kPipeline && updates_each_micro_batch(parallel.options.pipeline.schedule))
    fail(
        "owt check: a pipeline without a flush (pipeline.schedule) updates the weights within a step, so there is no "
        "gradient of all its rows; use --set pipeline.schedule=1f1b");
  ServerRequest& server = parallel.options.server;
  if (server != server.synchronous())
    log_info("checking a synchronous step with whole gradients: without ps.delay, ps.pushes, ps.backup and ps.filters");
  server = server.synchronous();
  parallel.average_every = 1;
  parallel.dense_update = DenseUpdate::kStep;
}

int64_t parts_of_rows(const Settings& settings) {
  return std::max(settings.data.accumulate, settings.parallel.options.pipeline.micro_batches);
}

int Settings::computing_ranks() const {
  const bool serves = facts_of(parallel.strategy).updates == Updates::kServers;
  return parallel.workers - (serves ? parallel.options.server.servers : 0);
}

void check_canonical(const Config& run, const Settings& settings) {
  if (!settings.run.canonical) return;
  const char* const begin = "'canonical' gives the same bits with every number of workers, but ";
  if (settings.data.batch_per_rank > 0)
    run.error("canonical", concat(begin, "with data.batch_per_rank the batch depends on it; give data.batch"));
  if (!settings.distill.run.empty())
    run.error("canonical", concat(begin, "the sums of the teacher's evaluation are ordinary; leave loss.distill out"));
  if (settings.parallel.scale_lr != "none")
    run.error("canonical", concat(begin, "with parallel.scale_lr the learning rate depends on it; leave it out"));
}

void check_workers_may_change(const Settings& settings) {
  const ParallelSettings& parallel = settings.parallel;
  const auto refuse = [](const std::string& what, const std::string& cure) {
    fail("--elastic and ", what, " do not go together; ", cure);
  };
  if (facts_of(parallel.strategy).updates == Updates::kServers)
    refuse(concat("strategy '", name_of(parallel.strategy), "'"),
           "with ps.servers, --tolerate-loss lets workers leave");
  if (parallel.average_every > 1) refuse("parallel.average_every", "leave one of them out");
  if (settings.data.batch == 0) refuse("data.batch_per_rank", "give data.batch, the images of a step of all workers");
  for (const auto& [key, given] : {std::pair("parallel.model_ranks", parallel.model_ranks > 0),
                                   std::pair("parallel.shares of numbers", !parallel.shares.empty())})
    if (given) refuse(key, "these numbers are of one number of workers; leave them out");
  if (parallel.scale_lr != "none")
    refuse("parallel.scale_lr", "the step keeps its images, so the rate need not change; leave it out");
}

}  // namespace owt
