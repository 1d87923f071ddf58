#include "src/plan/pipeline.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "src/system/check.h"
#include "src/system/config.h"

namespace owt {
namespace {

struct Named {
  PipelineSchedule schedule;
  const char* name;
};
constexpr Named kSchedules[] = {
    {PipelineSchedule::kGPipe, "gpipe"},         {PipelineSchedule::k1F1B, "1f1b"},
    {PipelineSchedule::kVanilla, "vanilla"},     {PipelineSchedule::kPipeDream, "pipedream"},
    {PipelineSchedule::kSpecTrain, "spectrain"}, {PipelineSchedule::kSpecTrain2, "spectrain2"}};

// The number of forwards of a stage before its first backward.
int forwards_ahead(PipelineSchedule schedule, int stages, int place, int micro_batches) {
  return schedule == PipelineSchedule::kGPipe ? micro_batches : std::min(micro_batches, stages - place);
}

}  // namespace

const char* name_of(PipelineSchedule schedule) {
  for (const Named& each : kSchedules)
    if (each.schedule == schedule) return each.name;
  return "";
}

std::vector<std::string> pipeline_schedule_names() {
  std::vector<std::string> names;
  for (const Named& each : kSchedules) names.emplace_back(each.name);
  return names;
}

PipelineSchedule pipeline_schedule_from(const std::string& name) {
  for (const Named& each : kSchedules)
    if (name == each.name) return each.schedule;
  fail("no schedule '", name, "' (there are ", joined(pipeline_schedule_names()), ")");
}

std::vector<StageTask> stage_tasks(PipelineSchedule schedule, int stages, int place, int micro_batches) {
  OWT_CHECK(stages >= 1 && place >= 0 && place < stages && micro_batches >= 1);
  const int ahead = forwards_ahead(schedule, stages, place, micro_batches);
  std::vector<StageTask> tasks;
  for (int batch = 0; batch < ahead; ++batch) tasks.push_back({true, batch});
  for (int done = 0; done < micro_batches; ++done) {
    tasks.push_back({false, schedule == PipelineSchedule::kGPipe ? micro_batches - 1 - done : done});
    if (ahead + done < micro_batches) tasks.push_back({true, ahead + done});
  }
  return tasks;
}

int most_under_way(PipelineSchedule schedule, int stages, int place, int micro_batches) {
  return forwards_ahead(schedule, stages, place, micro_batches);
}

bool updates_each_micro_batch(PipelineSchedule schedule) {
  return schedule != PipelineSchedule::kGPipe && schedule != PipelineSchedule::k1F1B;
}

bool copies_weights(PipelineSchedule schedule) {
  return updates_each_micro_batch(schedule) && schedule != PipelineSchedule::kVanilla;
}

int version_gap(int stages, int place, int batch) { return std::min(batch, stages - 1 - place); }

namespace {

// PipeDream: the backward of micro-batch v + most needs version v, the weights after v updates. No task needs an
// earlier version by then, except version 0.
int copy_of_version(int version, int most) { return version % most; }

// The stash of a micro-batch, kept from its forward to its backward. At most `most` other stashes exist at the same
// time. Micro-batch 0 never has one, since no update precedes it.
int copy_of_batch(int batch, int most) { return (batch - 1) % (most + 1); }

TaskWeights predicted(int copy, int ahead) { return ahead == 0 ? TaskWeights{} : TaskWeights{copy, true, ahead}; }

}  // namespace

TaskWeights weights_of(PipelineSchedule schedule, int stages, int place, int micro_batches, const StageTask& task) {
  const int gap = version_gap(stages, place, task.batch), most = stages - 1 - place;
  const int until_first_stage = std::min(place / 2, micro_batches - 1 - task.batch);
  switch (schedule) {
    case PipelineSchedule::kPipeDream:
      if (task.forward || gap == 0) return {};
      return {copy_of_version(task.batch - gap, most), false, 0};
    case PipelineSchedule::kSpecTrain:
      return predicted(0, until_first_stage + (task.forward ? gap : 0));
    case PipelineSchedule::kSpecTrain2:
      if (gap == 0) return {};
      return {copy_of_batch(task.batch, most), task.forward, task.forward ? gap : 0};
    default:
      return {};
  }
}

int kept_before_update(PipelineSchedule schedule, int stages, int place, int micro_batches, int batch) {
  const int most = stages - 1 - place;
  if (schedule != PipelineSchedule::kPipeDream || most == 0) return kNewestWeights;
  // The next micro-batch that needs this version, besides the current one.
  const int next_reader = batch == 0 ? 1 : batch + most;
  return next_reader < micro_batches ? copy_of_version(batch, most) : kNewestWeights;
}

double bubble(int stages, int micro_batches) { return (stages - 1.0) / (micro_batches + stages - 1.0); }

namespace {

// The cost of the most expensive stage, and the elements that all cuts send.
struct Division {
  double most = std::numeric_limits<double>::infinity();
  int64_t sent = 0;
  size_t last_cut = 0;  // first layer of the last stage
  bool operator<(const Division& other) const { return most != other.most ? most < other.most : sent < other.sent; }
};

}  // namespace

std::vector<Slice> balanced_stages(const std::vector<double>& cost, const std::vector<int64_t>& sent, int stages) {
  const size_t layers = cost.size();
  OWT_CHECK(sent.size() == layers && stages >= 1);
  std::vector<double> before(layers + 1, 0);  // cost of all earlier layers
  std::partial_sum(cost.begin(), cost.end(), before.begin() + 1);
  // best[s][i]: the best division of layers [0, i) into s + 1 stages.
  std::vector<std::vector<Division>> best(static_cast<size_t>(stages), std::vector<Division>(layers + 1));
  for (size_t i = 1; i <= layers; ++i) best[0][i] = {before[i], 0, 0};
  for (size_t s = 1; s < best.size(); ++s)
    for (size_t cut = 1; cut < layers; ++cut) {
      if (sent[cut] < 0) continue;
      for (size_t i = cut + 1; i <= layers; ++i) {
        const Division& front = best[s - 1][cut];
        best[s][i] = std::min(best[s][i], {std::max(front.most, before[i] - before[cut]), front.sent + sent[cut], cut});
      }
    }
  if (best.back()[layers].most == std::numeric_limits<double>::infinity())
    fail("the model cannot be cut into ", stages, " stages: it has ",
         std::count_if(sent.begin() + 1, sent.end(), [](int64_t each) { return each >= 0; }),
         " places for a cut; use fewer workers, groups of fewer (parallel.model_ranks), or another strategy");
  std::vector<Slice> runs(best.size());
  auto end = static_cast<int64_t>(layers);
  for (size_t s = best.size(); s-- > 0;) {
    const auto begin = static_cast<int64_t>(best[s][static_cast<size_t>(end)].last_cut);
    runs[s] = {begin, end};
    end = begin;
  }
  return runs;
}

}  // namespace owt
