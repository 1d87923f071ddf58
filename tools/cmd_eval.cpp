#include <iostream>

#include "src/comm/launch.h"
#include "src/core/log.h"
#include "src/train/run.h"
#include "tools/commands.h"

namespace owt {

int command_eval(const Arguments& arguments) {
  Options options("owt eval", "Measures the accuracy of a weights file on the test images.");
  options.positional("CONFIG", "the recipe, a TOML file (a run folder's config.toml will do)");
  options.option("weights", "FILE", "safetensors file with the model's weights");
  options.option("data", "DIR", "the data set (default: the recipe's data.dir, else $OWT_DATA, else ./datasets)");
  declare_shared(options);
  declare_strategy(options);
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  if (!options.given("weights")) throw UsageError("owt eval: --weights FILE is missing");
  const Evaluation e = evaluate_file(shared_settings(options), options.string("weights"),
                                     options.given("data") ? options.string("data") : "", shared_threads(options));
  if (launch().rank != 0) return 0;
  std::cout << format("top-1 {:.2f} %, top-5 {:.2f} %, loss {:.4f} ({} images)\n", 100 * e.top1, 100 * e.top5, e.loss,
                      e.images);
  return 0;
}

}  // namespace owt
