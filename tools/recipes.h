// Recipes and models by name, so that `owt train cifar10_quick` works in any folder.
#pragma once

#include <string>
#include <vector>

namespace owt {

// The file that CONFIG means: itself where it is a file, or a path. Else, with or without ".toml", the file of that
// name in the first of recipe_folders() that holds one. Throws Error naming the folders and the nearest name.
std::string find_recipe(const std::string& config);

// Whether it holds layers: a model by itself, and no recipe.
bool is_model_file(const std::string& file);
// The model file that is meant: itself where it is a file, else the one of that name in the first folder configs/models
// that holds one. An absolute path. Throws Error naming the nearest name.
std::string find_model(const std::string& model);

// Those of these that exist: ./configs, ./configs/models, and the same two of what came with the program:
// share/owt/configs of an installation, or configs beside the build folder of a source tree; in a build folder
// elsewhere it is a link.
std::vector<std::string> recipe_folders();

// Every file that find_recipe() finds by its name, once per name, in alphabetical order.
struct NamedRecipe {
  std::string name, file;
};
std::vector<NamedRecipe> named_recipes();
// Those of them that train this model file.
std::vector<NamedRecipe> recipes_of_model(const std::string& file);

// The same for a machine that `owt plan` is to predict for: a file, or one of configs/machines by its name.
std::string find_machine(const std::string& machine);

}  // namespace owt
