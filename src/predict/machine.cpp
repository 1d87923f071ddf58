#include "src/predict/machine.h"

#include <algorithm>

#include "src/predict/step_price.h"
#include "src/system/config.h"
#include "src/system/log.h"
#include "src/system/units.h"

namespace owt {
namespace {

// A value of the table, read by `parse`. Errors of parse name the key's line.
template <class Parse>
auto parsed(Config& table, const std::string& key, const Parse& parse) {
  const std::string text = table.string(key);
  try {
    return parse(text);
  } catch (const Error& e) {
    table.error(key, e.what());
  }
}

Link read_link(Config table) {
  Link link;
  link.bytes_per_s = parsed(table, "bandwidth", parse_bandwidth);
  link.latency_s = parsed(table, "latency", parse_seconds);
  table.finish();
  return link;
}

Network::Algorithm read_algorithm(Config& file) {
  const std::string word = file.word("collectives", "hierarchical", {"pairwise", "direct", "hierarchical"});
  return word == "pairwise" ? Network::Algorithm::kPairwise
         : word == "direct" ? Network::Algorithm::kDirect
                            : Network::Algorithm::kHierarchical;
}

Machine::Speed read_speed(Config table) {
  Machine::Speed speed;
  speed.model = table.string("model");
  speed.rows = table.integer("rows", {.low = 1, .high = 1 << 20});
  speed.images_per_second = table.number("images_per_second", {.low = 1e-3, .high = 1e9});
  table.finish();
  return speed;
}

}  // namespace

Machine read_machine(const std::string& path) {
  Config file = Config::file(path);
  Machine machine;
  machine.name = file.string("name");
  machine.source = file.string("source", "");
  machine.gpu = parsed(file, "gpu", device_speed);
  machine.gpus = static_cast<int>(file.integer("gpus", {.low = 1, .high = 4096}));
  machine.group = static_cast<int>(file.integer("group", machine.gpus, {.low = 1, .high = 4096}));
  if (machine.gpus % machine.group != 0) file.error("group", concat("wanted a divisor of ", machine.gpus, " cards"));
  machine.links.algorithm = read_algorithm(file);
  machine.links.one_port = file.boolean("one_port", false);
  machine.links.local = read_link(file.table("link"));
  if (machine.group < machine.gpus || file.has("between")) machine.links.between = read_link(file.table("between"));
  if (file.given("assumptions")) machine.assumptions = file.strings("assumptions");
  for (const Config& speed : file.tables("speed")) machine.speeds.push_back(read_speed(speed));
  file.finish();
  return machine;
}

Network Machine::network(int ranks) const {
  if (ranks > gpus) fail(name, " has ", gpus, " cards, and ", ranks, " workers want one each");
  if (ranks > group && ranks % group != 0)
    fail(name, " has cards in groups of ", group, "; wanted up to ", group, " workers, or a multiple of that, and not ",
         ranks);
  Network network = links;
  network.hosts = std::max(1, ranks / group);
  network.ranks_per_host = ranks / network.hosts;
  return network;
}

std::unique_ptr<ComputeModel> Machine::compute(const Model& model, Precision precision) const {
  for (const Speed& speed : speeds)
    if (speed.model == model.name) return compute_at_speed(gpu, model, precision, speed.rows, speed.images_per_second);
  return device_compute(gpu, model, precision);
}

std::string Machine::text() const {
  std::string text = format("{}: {} {} in groups of {}.\n", name, gpus, gpu.name, group);
  if (!source.empty()) text += format("  Source: {}\n", source);
  for (const Speed& speed : speeds)
    text += format("  One card trains {:g} images/s of {}, {} rows a step.\n", speed.images_per_second, speed.model,
                   speed.rows);
  for (const std::string& assumption : assumptions) text += format("  Assumed: {}\n", assumption);
  return text;
}

std::unique_ptr<ComputeModel> compute_at_speed(const DeviceSpeed& gpu, const Model& model, Precision precision,
                                               int64_t rows, double images_per_second) {
  auto times = device_compute(gpu, model, precision);
  const Plan alone = make_plan(model, {.step_rows = rows, .on = {Device::kCuda, precision}});
  const double factor = static_cast<double>(rows) / images_per_second / price_step(alone, Network(), *times).step_s();
  std::string text = format("{:g} images/s of one {} with {} rows a step; layer times in proportion to a model of it",
                            images_per_second, gpu.name, rows);
  return scaled_compute(std::move(times), factor, std::move(text));
}

}  // namespace owt
