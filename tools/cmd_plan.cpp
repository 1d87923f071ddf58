#include <algorithm>
#include <iostream>

#include "src/core/log.h"
#include "src/parallel/plan.h"
#include "tools/commands.h"

namespace owt {

int command_plan(const Arguments& arguments) {
  Options options("owt plan", "Shows what each worker computes and sends per step, and the totals of every strategy.");
  options.positional("CONFIG", "a recipe or a model file");
  declare_shared(options);
  options.repeated("parallel", "NAME",
                   "dp | owt-a | owt-b | owt-c | mp; may be given several times (default: the recipe's)");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  const Settings settings = shared_settings(options);
  PlanRequest request = settings.plan_request();
  std::vector<std::string> shown = options.list("parallel");
  if (shown.empty()) shown.push_back(name_of(request.strategy));
  for (const std::string& name : shown) {
    request.strategy = strategy_from(name);
    std::cout << make_plan(settings.model, request).table() << '\n';
  }
  std::cout << format("{:<10} {:>20} {:>22}\n", "strategy", "MB sent per worker", "weights MB per worker");
  for (const std::string& name : strategy_names()) {
    request.strategy = strategy_from(name);
    const Plan plan = make_plan(settings.model, request);
    std::cout << format("{:<10} {:>20.3f} {:>22.2f}{}\n", name, static_cast<double>(plan.bytes_per_step()) / 1e6,
                        static_cast<double>(plan.weight_bytes_per_rank()) / 1e6,
                        std::count(shown.begin(), shown.end(), name) > 0 ? "   <- shown above" : "");
  }
  return 0;
}

}  // namespace owt
