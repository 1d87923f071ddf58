#include "src/core/device.h"
#include "tools/commands.h"

namespace owt {
namespace {

const std::string& checked_strategy(const std::string& name) {
  try {
    strategy_from(name);
  } catch (const Error& e) {
    throw UsageError(concat("--parallel: ", e.what()));
  }
  return name;
}

}  // namespace

void declare_shared(Options& options) {
  options.option("workers", "K", "ranks, as threads of this process (default: the recipe's, else 1)");
  options.option("device", "NAME", "cpu", "cpu");
  options.option("threads", "T", "0", "compute threads of all workers together; 0: all cores");
  options.repeated("set", "KEY=VALUE", "change a key of the recipe, e.g. --set data.batch=64");
}

void declare_strategy(Options& options) {
  options.option("parallel", "NAME", "dp | owt-a | owt-b | owt-c | mp (default: the recipe's, else owt-a)");
}

Settings shared_settings(const Options& options, Overrides more) {
  const std::string device = options.string("device");
  if (device != "cpu" && device != "cuda") throw UsageError("--device " + device + ": wanted cpu or cuda");
  device_from(device);
  Overrides overrides;
  for (const std::string& change : options.list("set")) {
    const size_t equals = change.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError("--set " + change + ": wanted KEY=VALUE, e.g. --set schedule.epochs=3");
    overrides.emplace_back(change.substr(0, equals), change.substr(equals + 1));
  }
  if (options.given("workers"))
    overrides.emplace_back("parallel.workers", std::to_string(options.integer("workers", {.low = 1, .high = 4096})));
  for (const std::string& name : options.list("parallel"))
    overrides.emplace_back("parallel.strategy", checked_strategy(name));
  overrides.insert(overrides.end(), more.begin(), more.end());
  return read_settings(options.string("CONFIG"), overrides);
}

int shared_threads(const Options& options) {
  return static_cast<int>(options.integer("threads", {.low = 0, .high = 4096}));
}

}  // namespace owt
