#include "tools/recipes.h"

#include <filesystem>
#include <map>

#include "src/core/check.h"
#include "src/core/config.h"

namespace owt {
namespace {

constexpr const char* kSuffix = ".toml";

std::string bare_name(const std::string& config) {
  return config.ends_with(kSuffix) ? config.substr(0, config.size() - std::string(kSuffix).size()) : config;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

[[noreturn]] void fail_unknown(const std::string& config) {
  std::vector<std::string> names;
  for (const NamedRecipe& recipe : named_recipes()) names.push_back(recipe.name);
  const std::string near = nearest(bare_name(config), names), looked = joined(recipe_folders());
  fail("there is no file or folder ", config, ", and no recipe or model of that name in ",
       looked.empty() ? "./configs" : looked,
       near.empty() ? "; 'owt recipes' lists the names" : concat("; did you mean '", near, "'?"));
}

}  // namespace

std::vector<std::string> recipe_folders() {
  namespace fs = std::filesystem;
  std::error_code none;  // where /proc is missing only ./configs is left
  const fs::path program = fs::read_symlink("/proc/self/exe", none).parent_path();
  std::vector<std::string> folders;
  for (const fs::path& root :
       {fs::path("configs"), program.parent_path() / "share/owt/configs", program.parent_path() / "configs"})
    for (const fs::path& folder : {root, root / "models"})
      if (fs::is_directory(folder, none)) folders.push_back(folder.string());
  return folders;
}

std::vector<NamedRecipe> named_recipes() {
  std::map<std::string, std::string> files;
  for (const std::string& folder : recipe_folders())
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == kSuffix) files.emplace(entry.path().stem().string(), entry.path().string());
  std::vector<NamedRecipe> recipes;
  for (const auto& [name, file] : files) recipes.push_back({name, file});
  return recipes;
}

std::string find_recipe(const std::string& config) {
  if (std::filesystem::is_regular_file(config) || config.find('/') != std::string::npos) return config;
  for (const NamedRecipe& recipe : named_recipes())
    if (recipe.name == bare_name(config)) return recipe.file;
  fail_unknown(config);
}

}  // namespace owt
