#include <algorithm>
#include <iostream>

#include "src/commands/json_output.h"
#include "src/system/log.h"
#include "src/system/printable.h"
#include "tools/commands.h"
#include "tools/recipes.h"

namespace owt {

int command_recipes(const Arguments& arguments) {
  Options options("owt recipes", "Lists the recipes and models that can be given by name in place of a file.");
  declare_json(options);
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  const std::vector<NamedRecipe> recipes = named_recipes();
  if (options.boolean("json")) {
    OutputJson json = OutputJson::array();
    for (const NamedRecipe& recipe : recipes)
      json.push_back({{"name", recipe.name}, {"file", recipe.file}, {"model", is_model_file(recipe.file)}});
    std::cout << json_lines(json);
    return 0;
  }
  size_t width = 0;
  for (const NamedRecipe& recipe : recipes) width = std::max(width, recipe.name.size());
  for (const NamedRecipe& recipe : recipes)
    std::cout << format("{:<{}}  {}\n", printable(recipe.name), width, printable(recipe.file));
  return 0;
}

}  // namespace owt
