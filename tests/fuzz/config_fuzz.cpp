// Reads any text as a recipe with its model, or as a model file.
#include "src/recipe/settings.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  owt::try_reading([&] {
    owt::Config config = owt::Config::text(owt::text_of(bytes, count));
    if (config.has("layer")) {
      const owt::Model model = owt::read_model(config);
      owt::promise(model.classes >= 2 && !model.layers.empty(), "a model has layers and classes");
    } else {
      const owt::Settings settings = owt::settings_from(config, "fuzz");
      owt::promise(settings.data.batch > 0 || settings.data.batch_per_rank > 0, "a recipe has a batch");
      owt::settings_from(owt::Config::text(settings.recipe.to_toml()), "again");
      // Sums bytes over all layers and ranks; planning for thousands of ranks would take too long.
      if (settings.parallel.workers <= 16) owt::make_plan(settings.model, settings.plan_request());
    }
  });
  return 0;
}
