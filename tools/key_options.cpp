// Options that set a key of the recipe to a number.
#include <algorithm>
#include <limits>

#include "src/system/log.h"
#include "tools/commands.h"

namespace owt {
namespace {

struct KeyOption {
  const char *name, *placeholder, *key, *help;
  bool whole;
  Range range;
};

constexpr Range kPositive{.low = std::numeric_limits<double>::min()};

constexpr KeyOption kKeyOptions[] = {
    {"epochs", "N", "schedule.epochs",
     "length of the run; if it is shorter than the recipe's, warm-up and milestones move in proportion", false,
     kPositive},
    {"steps",
     "N",
     "schedule.max_steps",
     "stop after this many steps; a schedule in epochs does not change, and one in steps moves in proportion",
     true,
     {.low = 1}},
    {"lr", "RATE", "optimizer.learning_rate", "learning rate", false, kPositive},
    {"batch", "N", "data.batch", "images of a step, of all workers together", true, {.low = 1, .high = 1 << 24}},
    {"seed", "S", "run.seed", "random seed of weights, order, augmentation and dropout", true, {.low = 0}},
};

bool sets(const Overrides& overrides, const std::string& key) {
  return std::any_of(overrides.begin(), overrides.end(), [&](const auto& each) { return each.first == key; });
}

// The values of a table of the schedule that count epochs, times `factor`.
Overrides scaled_epochs(Config table, const std::string& name, double factor) {
  Overrides scaled;
  const auto add = [&](const char* key, const std::string& value) { scaled.emplace_back(concat(name, key), value); };
  for (const char* key : {"warmup_epochs", "every"})
    if (table.has(key)) add(key, format("{:.4g}", factor * table.number(key)));
  for (const char* key : {"milestones", "until"}) {
    if (!table.has(key)) continue;
    std::vector<std::string> epochs;
    for (const double epoch : table.numbers(key)) epochs.push_back(format("{:.4g}", factor * epoch));
    add(key, concat("[", joined(epochs), "]"));
  }
  return scaled;
}

// The values of the schedule that change if the run is `length` epochs or steps long and the recipe's run is longer.
Overrides shorter_schedule(Config schedule, const char* key, double length) {
  const double factor = length / schedule.number(key, 0.0);
  if (!(factor < 1)) return {};
  Overrides scaled = scaled_epochs(schedule, "schedule.", factor);
  if (schedule.is_table("biases")) {
    const Overrides of_biases = scaled_epochs(schedule.table("biases"), "schedule.biases.", factor);
    scaled.insert(scaled.end(), of_biases.begin(), of_biases.end());
  }
  return scaled;
}

}  // namespace

void declare_keys(Options& options, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    for (const KeyOption& each : kKeyOptions)
      if (name == each.name) options.key_option(name, each.placeholder, each.key, each.help);
}

Overrides key_changes(const Options& options) {
  Overrides changes;
  for (const KeyOption& each : kKeyOptions) {
    if (!options.sets_key(each.name, each.key) || !options.given(each.name)) continue;
    if (each.whole) options.integer(each.name, each.range);
    if (!each.whole) options.number(each.name, each.range);
    changes.emplace_back(each.key, options.string(each.name));
  }
  return changes;
}

Overrides with_consequences(const Options& options, Config recipe, Overrides overrides) {
  const auto given = [&](const char* name, const char* key) {
    return options.sets_key(name, key) && options.given(name);
  };
  if (given("batch", "data.batch") && recipe.is_table("data") && recipe.table("data").has("batch_per_rank"))
    overrides.emplace_back("data.batch_per_rank", "");
  if (!recipe.is_table("schedule")) return overrides;
  Overrides shorter;
  if (given("epochs", "schedule.epochs"))
    shorter = shorter_schedule(recipe.table("schedule"), "epochs", options.number("epochs"));
  else if (given("steps", "schedule.max_steps") && !recipe.table("schedule").has("epochs"))
    shorter = shorter_schedule(recipe.table("schedule"), "max_steps", options.number("steps"));
  std::erase_if(shorter, [&](const auto& each) { return sets(overrides, each.first); });
  if (shorter.empty()) return overrides;
  std::vector<std::string> shown;
  for (const auto& [key, value] : shorter) shown.push_back(concat(key, " = ", value));
  log_info("the run is shorter than the recipe's: {}", joined(shown));
  overrides.insert(overrides.end(), shorter.begin(), shorter.end());
  return overrides;
}

}  // namespace owt
