#include "src/commands/planner_files.h"

#include "src/commands/json_output.h"
#include "src/predict/measure_network.h"
#include "src/system/files.h"
#include "src/system/json_text.h"

namespace owt {
namespace {

using Json = OutputJson;

constexpr const char* kLinksFormat = "owt links 1";
constexpr const char* kPredictionFormat = "owt prediction 1";
constexpr double kLongestCollective = 1e6;            // seconds
constexpr int64_t kLargestTensor = int64_t{1} << 50;  // bytes
constexpr int kMostRanks = 1 << 20;

Collective collective_named(const std::string& name) {
  for (const Collective collective : all_collectives())
    if (name == name_of(collective)) return collective;
  fail("there is no collective '", name, "'");
}

CollectiveTime time_from(const Json& entry) {
  CollectiveTime time;
  time.collective = collective_named(json_get<std::string>(entry, "collective", "a text"));
  time.bytes = json_whole(entry, "bytes", 1, kLargestTensor);
  time.seconds = json_positive(entry, "seconds", kLongestCollective);
  time.overlaps = json_get<bool>(entry, "overlaps", "true or false");
  return time;
}

Network network_from(const Json& file) {
  if (json_get_or(file, "format", std::string(), "a text") != kLinksFormat)
    fail("its \"format\" is not \"", kLinksFormat, "\"");
  const auto ranks = static_cast<int>(json_whole(file, "ranks", 2, kMostRanks));
  const auto hosts = static_cast<int>(json_whole(file, "hosts", 1, ranks));
  if (ranks % hosts != 0) fail(ranks, " ranks on ", hosts, " hosts; wanted as many on every host");
  std::vector<CollectiveTime> times;
  for (const Json& entry : json_objects(file, "times")) times.push_back(time_from(entry));
  Network network = measured_network(times, ranks, hosts);
  for (const Collective collective : all_collectives())
    if (!is_message(collective) && network.measured[collective].empty())
      fail("it has no times of ", name_of(collective), ", and predictions need all collectives");
  return network;
}

}  // namespace

std::string links_json(const std::vector<CollectiveTime>& times, int ranks, int hosts, Device device) {
  Json file = {{"format", kLinksFormat}, {"ranks", ranks}, {"hosts", hosts}, {"device", name_of(device)}};
  file["times"] = Json::array();
  for (const CollectiveTime& time : times) {
    const double speed = static_cast<double>(time.bytes) / time.seconds;
    file["times"].push_back({{"collective", name_of(time.collective)},
                             {"bytes", time.bytes},
                             {"seconds", time.seconds},
                             {"overlaps", time.overlaps},
                             {"calls", time.calls},
                             {"algbw", speed},
                             {"busbw", speed * bus_factor(time.collective, ranks)}});
  }
  return json_lines(file);
}

Network read_links(const std::string& path) {
  try {
    return network_from(json_object<Json>(read_file(path)));
  } catch (const Error& e) {
    fail(path, ": ", e.what(), "; wanted a file of owt bench-comm --json");
  }
}

namespace {

Json step_json(const StepEstimate& step) {
  Json json = {{"device", step.device},
               {"seconds", step.seconds()},
               {"beside_s", step.beside_seconds()},
               {"floor_s", step.floor_seconds},
               {"images_per_second", step.images_per_second()},
               {"assumptions", step.assumptions}};
  const auto rows = static_cast<double>(step.rows);
  for (const auto& [launch, seconds, bound, own_seconds] : step.launches)
    json["launches"].push_back({{"layer", launch.name},
                                {"phase", name_of(launch.phase)},
                                {"kernel", launch.kernel},
                                {"kind", name_of(launch.kind)},
                                {"flops", launch.flops * rows},
                                {"bytes", launch.bytes(rows)},
                                {"seconds", seconds},
                                {"bound", bound},
                                {"beside", launch.beside}});
  return json;
}

}  // namespace

std::string prediction_json(const PlannerResult& result) {
  const PlanRequest& request = result.choice.chosen().request;
  Json file = {{"format", kPredictionFormat},
               {"model", result.model},
               {"ranks", request.ranks},
               {"step_rows", request.step_rows},
               {"network", result.network},
               {"compute", result.compute},
               {"best", result.choice.chosen().name()},
               {"reason", result.choice.reason()},
               {"crossover_rows", result.crossover_rows},
               {"crossover_rows_by_bytes", result.crossover_rows_by_bytes}};
  if (!request.shares.empty()) file["shares"] = request.shares;
  if (!request.speeds.empty()) file["speeds"] = request.speeds;
  file["strategies"] = Json::array();
  for (const Prediction& p : result.choice.all)
    file["strategies"].push_back({{"name", p.name()},
                                  {"strategy", name_of(p.request.strategy)},
                                  {"model_ranks", p.model_ranks},
                                  {"bytes", p.bytes},
                                  {"busiest_link", p.busiest_link},
                                  {"compute_s", p.compute_s},
                                  {"exposed_s", p.exposed_s},
                                  {"update_s", p.update_s},
                                  {"step_s", p.step_s()},
                                  {"images_per_second", p.images_per_second()},
                                  {"transfer_s", p.transfer_s},
                                  {"memory_bytes", p.memory_bytes}});
  file["refused"] = Json::array();
  for (const Refusal& each : result.choice.refused) file["refused"].push_back({{"name", each.name}, {"why", each.why}});
  if (const auto& loading = result.loading)
    file["loading"] = {{"images_per_second", loading->images_per_s},
                       {"images_per_core_second", loading->images_per_core_s},
                       {"cores", loading->cores()},
                       {"source", loading->source}};
  if (result.step) file["step"] = step_json(*result.step);
  return json_lines(file);
}

}  // namespace owt
