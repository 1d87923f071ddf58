// Recipes and models by name, so that `owt train cifar10_quick` works in any folder.
#pragma once

#include <string>
#include <vector>

namespace owt {

// The file of CONFIG: itself if it is a file or a path. Otherwise, with or without ".toml", the file of that name in
// the first of recipe_folders() that has one. Throws Error with the folders and the nearest name.
std::string find_recipe(const std::string& config);

// Whether the file contains layers, so that it is a model file and no recipe.
bool is_model_file(const std::string& file);
// The absolute path of a model file: itself if it is a file, else the file of that name in the first folder
// configs/models that has one. Throws Error with the nearest name.
std::string find_model(const std::string& model);

// The existing ones of these folders: ./configs, ./configs/models, and the two folders of the program. These are in
// share/owt/configs of an installation, or in configs beside the build folder of a source tree; other build folders
// have a link.
std::vector<std::string> recipe_folders();

// All files that find_recipe() finds by name, once for each name, in alphabetical order.
struct NamedRecipe {
  std::string name, file;
};
std::vector<NamedRecipe> named_recipes();
// The recipes that train this model file.
std::vector<NamedRecipe> recipes_of_model(const std::string& file);

// The file of a machine for `owt plan`: itself, or the file of that name in configs/machines.
std::string find_machine(const std::string& machine);

}  // namespace owt
