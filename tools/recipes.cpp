#include "tools/recipes.h"

#include <filesystem>
#include <map>

#include "src/system/check.h"
#include "src/system/config.h"

namespace owt {
namespace {

constexpr const char* kSuffix = ".toml";

std::string bare_name(const std::string& config) {
  return config.ends_with(kSuffix) ? config.substr(0, config.size() - std::string(kSuffix).size()) : config;
}

std::vector<std::string> names_of(const std::vector<NamedRecipe>& recipes) {
  std::vector<std::string> names;
  for (const NamedRecipe& recipe : recipes) names.push_back(recipe.name);
  return names;
}

[[noreturn]] void fail_unknown(const std::string& config) {
  const std::string near = nearest(bare_name(config), names_of(named_recipes())), looked = joined(recipe_folders());
  fail("there is no file or folder ", config, ", and no recipe or model of that name in ",
       looked.empty() ? "./configs" : looked,
       near.empty() ? "; 'owt recipes' lists the names" : concat("; did you mean '", near, "'?"));
}

// The existing folders of these names, in ./configs and in the program's own configs.
std::vector<std::string> folders_named(const std::vector<std::string>& inner) {
  namespace fs = std::filesystem;
  std::error_code none;  // without /proc only ./configs is used
  const fs::path program = fs::read_symlink("/proc/self/exe", none).parent_path();
  std::vector<std::string> folders;
  for (const fs::path& root : {fs::path("configs"), program.parent_path() / "share/owt/configs",
                               program.parent_path() / "configs", program / "configs"})
    for (const std::string& name : inner)
      if (const fs::path folder = name.empty() ? root : root / name; fs::is_directory(folder, none))
        folders.push_back(folder.string());
  return folders;
}

std::vector<NamedRecipe> named_files(const std::vector<std::string>& folders) {
  std::map<std::string, std::string> files;
  for (const std::string& folder : folders)
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == kSuffix) files.emplace(entry.path().stem().string(), entry.path().string());
  std::vector<NamedRecipe> recipes;
  for (const auto& [name, file] : files) recipes.push_back({name, file});
  return recipes;
}

}  // namespace

std::vector<std::string> recipe_folders() { return folders_named({"", "models"}); }

std::vector<NamedRecipe> named_recipes() { return named_files(recipe_folders()); }

std::string find_machine(const std::string& machine) {
  if (std::filesystem::is_regular_file(machine) || machine.find('/') != std::string::npos) return machine;
  const std::vector<NamedRecipe> known = named_files(folders_named({"machines"}));
  for (const NamedRecipe& each : known)
    if (each.name == bare_name(machine)) return each.file;
  const std::string near = nearest(bare_name(machine), names_of(known)), names = joined(names_of(known));
  fail("there is no file ", machine, ", and no machine of that name",
       names.empty() ? "" : concat(" (there are ", names, ")"),
       near.empty() ? "" : concat("; did you mean '", near, "'?"));
}

bool is_model_file(const std::string& file) {
  return std::filesystem::is_regular_file(file) && Config::file(file).has("layer");
}

std::string find_model(const std::string& model) {
  namespace fs = std::filesystem;
  if (fs::is_regular_file(model)) return fs::absolute(model).lexically_normal().string();
  const std::vector<NamedRecipe> known = named_files(folders_named({"models"}));
  for (const NamedRecipe& each : known)
    if (each.name == bare_name(model)) return fs::absolute(each.file).lexically_normal().string();
  const std::string near = nearest(bare_name(model), names_of(known));
  fail("--set model=", model, ": there is no such file, seen from the working directory, and no model of that name",
       near.empty() ? "; 'owt recipes' lists the names" : concat("; did you mean '", near, "'?"));
}

std::vector<NamedRecipe> recipes_of_model(const std::string& file) {
  namespace fs = std::filesystem;
  std::vector<NamedRecipe> recipes;
  for (const NamedRecipe& each : named_recipes()) {
    try {
      Config recipe = Config::file(each.file);
      std::error_code none;
      if (recipe.is_string("model") &&
          fs::equivalent(fs::path(each.file).parent_path() / recipe.string("model"), file, none))
        recipes.push_back(each);
    } catch (const Error&) {  // find_recipe() reports the error when that file is used
    }
  }
  return recipes;
}

std::string find_recipe(const std::string& config) {
  if (std::filesystem::is_regular_file(config) || config.find('/') != std::string::npos) return config;
  for (const NamedRecipe& recipe : named_recipes())
    if (recipe.name == bare_name(config)) return recipe.file;
  fail_unknown(config);
}

}  // namespace owt
