#include <algorithm>
#include <iostream>

#include "src/system/log.h"
#include "src/system/printable.h"
#include "tools/commands.h"
#include "tools/recipes.h"

namespace owt {

int command_recipes(const Arguments& arguments) {
  Options options("owt recipes", "Lists the recipes and models that can be given by name in place of a file.");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  const std::vector<NamedRecipe> recipes = named_recipes();
  size_t width = 0;
  for (const NamedRecipe& recipe : recipes) width = std::max(width, recipe.name.size());
  for (const NamedRecipe& recipe : recipes)
    std::cout << format("{:<{}}  {}\n", printable(recipe.name), width, printable(recipe.file));
  return 0;
}

}  // namespace owt
