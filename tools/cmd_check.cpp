#include <iostream>

#include "src/commands/check.h"
#include "src/commands/json_output.h"
#include "src/system/log.h"
#include "tools/commands.h"

namespace owt {
namespace {

OutputJson check_json(const CheckOutcome& outcome) {
  OutputJson json{{"step", outcome.what}, {"loss", outcome.loss}, {"wrong", outcome.wrong()}};
  if (outcome.loss_of_one) json["loss_of_one_worker"] = *outcome.loss_of_one;
  if (!outcome.not_compared.empty()) json["not_compared"] = outcome.not_compared;
  json["parameters"] = OutputJson::array();
  for (const CheckedParameter& at : outcome.parameters) {
    OutputJson one{{"name", at.name},   {"elements", at.elements}, {"gradient", at.gradient},
                   {"error", at.error}, {"noise", at.noise},       {"loss", name_of(at.of_loss)}};
    if (at.from_one) one["difference"] = *at.from_one, one["one_worker"] = name_of(at.of_workers);
    json["parameters"].push_back(one);
  }
  return json;
}

}  // namespace

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
  declare_json(options);
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  CheckOptions check;
  if (options.given("rows")) check.rows = options.integer("rows", {.low = 1, .high = 1e6});
  check.samples = static_cast<int>(options.integer("samples", {.low = 1, .high = 64}));
  check.threads = shared_threads(options);
  const CheckOutcome outcome = check_gradients(shared_settings(options), check);
  std::cout << (options.boolean("json") ? json_lines(check_json(outcome)) : outcome.table()) << std::flush;
  if (!outcome.wrong()) return 0;
  std::string wrong;
  for (const CheckedParameter& at : outcome.parameters)
    if (at.of_loss == Verdict::kWrong || at.of_workers == Verdict::kWrong)
      wrong += (wrong.empty() ? "" : ", ") + at.name;
  fail("wrong gradients: ", wrong);
}

}  // namespace owt
