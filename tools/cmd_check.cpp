#include <iostream>

#include "src/commands/check.h"
#include "src/system/log.h"
#include "tools/commands.h"

namespace owt {

int command_check(const Arguments& arguments) {
  Options options("owt check",
                  "Checks the gradients of one training step on made-up images. A few elements of every parameter are "
                  "compared with difference quotients of the loss, and all gradients with those of one worker. Exits "
                  "with 1 if a gradient is wrong. Use it for a layer or a strategy that you add.");
  options.positional("CONFIG", concat("a recipe or a model: ", kFileOrName));
  declare_shared(options);
  declare_strategy(options);
  options.option("rows", "N",
                 "rows of the step (default: 8 for each worker, more if micro-batches or batch norm's groups need "
                 "more, at most the recipe's)");
  options.option("samples", "N", "3",
                 "elements to check of each parameter: the one with the largest gradient, and random ones");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  CheckOptions check;
  if (options.given("rows")) check.rows = options.integer("rows", {.low = 1, .high = 1e6});
  check.samples = static_cast<int>(options.integer("samples", {.low = 1, .high = 64}));
  check.threads = shared_threads(options);
  const CheckOutcome outcome = check_gradients(shared_settings(options), check);
  std::cout << outcome.table() << std::flush;
  if (!outcome.wrong()) return 0;
  std::string wrong;
  for (const CheckedParameter& at : outcome.parameters)
    if (at.of_loss == Verdict::kWrong || at.of_workers == Verdict::kWrong)
      wrong += (wrong.empty() ? "" : ", ") + at.name;
  fail("wrong gradients: ", wrong);
}

}  // namespace owt
