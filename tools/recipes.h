// Recipes and models by name, so that `owt train cifar10_quick` works in any folder.
#pragma once

#include <string>
#include <vector>

namespace owt {

// The file for CONFIG. If CONFIG is a file or a path, it is used as is. Otherwise the file of that name, with or
// without ".toml", in the first of recipe_folders() that has one. Throws Error with the folders and the nearest name.
std::string find_recipe(const std::string& config);

// Whether the file holds only layers: a model, not a recipe.
bool is_model_file(const std::string& file);
// The model file for `model`: the file itself, or the file of that name in the first folder configs/models that has
// one. An absolute path. Throws Error with the nearest name.
std::string find_model(const std::string& model);

// The existing folders among ./configs, ./configs/models and the same two of the program. The program's are in
// share/owt/configs of an installation, or in configs beside the build folder in a source tree. A build folder
// elsewhere has a link to them.
std::vector<std::string> recipe_folders();

// All files that find_recipe() finds by name, once for each name, in alphabetical order.
struct NamedRecipe {
  std::string name, file;
};
std::vector<NamedRecipe> named_recipes();
// The recipes that train this model file.
std::vector<NamedRecipe> recipes_of_model(const std::string& file);

// Finds the machine for `owt plan`: a file, or the name of a file in configs/machines.
std::string find_machine(const std::string& machine);

}  // namespace owt
