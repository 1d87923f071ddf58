#include <algorithm>

#include "src/comm/launch.h"
#include "tools/commands.h"

namespace owt {
namespace {

std::string listed(const std::vector<std::string>& words) {  // "a, b or c"
  std::string text = words.front();
  for (size_t i = 1; i < words.size(); ++i) text += (i + 1 < words.size() ? ", " : " or ") + words[i];
  return text;
}

const std::string& checked_strategy(const std::string& name) {
  try {
    if (name != "auto") strategy_from(name);
  } catch (const Error& e) {
    throw UsageError(concat("--parallel: ", e.what()));
  }
  return name;
}

}  // namespace

void declare_shared(Options& options) {
  options.option(
      "workers", "K",
      "ranks, as threads of this process (default: the recipe's, else 1); under mpirun or srun every process is "
      "one, and this is their number");
  options.option("device", "NAME",
                 "cpu | cuda | auto: cuda where there is a GPU (default: the recipe's run.device, else auto)");
  options.option("precision", "NAME",
                 "fp32 | tf32 | bf16; the last two on GPUs (default: the recipe's run.precision, else fp32)");
  options.option("threads", "T", "0", "compute threads of all workers of this host together; 0: all cores");
  options.repeated("set", "KEY=VALUE", "change a key of the recipe, e.g. --set data.batch=64");
}

void declare_strategy(Options& options) {
  options.option(
      "parallel", "NAME",
      "dp | dp-zero | owt-a | owt-b | owt-c | owt-d | mp | auto: the one with the least predicted step time (default: "
      "the recipe's, else owt-a)");
}

Settings shared_settings(const Options& options, Overrides more) {
  Overrides overrides;
  const auto choice = [&](const std::string& name, const std::string& key, const std::vector<std::string>& words) {
    if (!options.given(name)) return;
    const std::string word = options.string(name);
    if (std::find(words.begin(), words.end(), word) == words.end())
      throw UsageError("--" + name + " " + word + ": wanted " + listed(words));
    overrides.emplace_back(key, word);
  };
  for (const std::string& change : options.list("set")) {
    const size_t equals = change.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError("--set " + change + ": wanted KEY=VALUE, e.g. --set schedule.epochs=3");
    overrides.emplace_back(change.substr(0, equals), change.substr(equals + 1));
  }
  choice("device", "run.device", {"cpu", "cuda", "auto"});
  choice("precision", "run.precision", {"fp32", "tf32", "bf16"});
  if (options.given("workers"))
    overrides.emplace_back("parallel.workers", std::to_string(options.integer("workers", {.low = 1, .high = 4096})));
  else if (launch().several())
    overrides.emplace_back("parallel.workers", std::to_string(launch().ranks));
  for (const std::string& name : options.list("parallel"))
    overrides.emplace_back("parallel.strategy", checked_strategy(name));
  overrides.insert(overrides.end(), more.begin(), more.end());
  return read_settings(options.string("CONFIG"), overrides);
}

int shared_threads(const Options& options) {
  return static_cast<int>(options.integer("threads", {.low = 0, .high = 4096}));
}

}  // namespace owt
