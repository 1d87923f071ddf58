#include <algorithm>
#include <fstream>
#include <iostream>

#include "src/commands/json_output.h"
#include "src/system/check.h"
#include "src/system/config.h"
#include "src/system/log.h"
#include "src/system/printable.h"
#include "tools/commands.h"
#include "tools/recipes.h"

namespace owt {
namespace {

// The first line of the file, if it is a comment, without its full stop.
std::string description_in(const std::string& file) {
  std::string line;
  std::getline(std::ifstream(file) >> std::ws, line);
  if (!line.starts_with("# ")) return "";
  return line.substr(2, line.size() - 2 - (line.ends_with('.') ? 1 : 0));
}

bool holds_layers(const std::string& file) {
  try {
    return is_model_file(file);
  } catch (const Error&) {  // the command that uses the file reports what is wrong with it
    return false;
  }
}

void print_named(const char* title, const std::vector<NamedRecipe>& all, bool models) {
  size_t width = 0;
  for (const NamedRecipe& each : all) width = std::max(width, printable(each.name).size());
  std::cout << title << '\n';
  for (const NamedRecipe& each : all)
    if (holds_layers(each.file) == models)
      std::cout << format("  {:<{}}  {}\n", printable(each.name), width, printable(description_in(each.file)));
}

}  // namespace

int command_recipes(const Arguments& arguments) {
  Options options("owt recipes",
                  "Lists the recipes and models that can be given by name in place of a file, with the first line of "
                  "each file.");
  declare_json(options);
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  const std::vector<NamedRecipe> recipes = named_recipes();
  if (options.boolean("json")) {
    OutputJson json = OutputJson::array();
    for (const NamedRecipe& recipe : recipes)
      json.push_back({{"name", recipe.name},
                      {"file", recipe.file},
                      {"model", holds_layers(recipe.file)},
                      {"description", description_in(recipe.file)}});
    std::cout << json_lines(json);
    return 0;
  }
  print_named("Recipes, for owt train and other commands:", recipes, false);
  print_named("\nModels, for owt plan, time, check and inspect:", recipes, true);
  std::cout << "\nTheir files are in " << joined(recipe_folders()) << '\n';
  return 0;
}

}  // namespace owt
