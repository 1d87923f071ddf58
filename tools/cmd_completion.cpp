// The completion of command lines: a script for each shell, which asks `owt completion words WORD...` for the words
// that may stand in place of the last WORD.
#include <iostream>
#include <sstream>

#include "src/system/log.h"
#include "tools/commands.h"
#include "tools/recipes.h"

namespace owt {
namespace {

constexpr const char* kBash = R"(# Completion of owt for bash.
_owt() {
  local IFS=$'\n' current=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=($("${COMP_WORDS[0]}" completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
  [ "$COMP_CWORD" = 1 ] || [[ $current == -* ]] && return
  COMPREPLY+=($(compgen -f -- "$current"))
  compopt -o filenames 2>/dev/null || true  # outside a completion, in tests, there are no options to set
}
complete -F _owt owt
)";

constexpr const char* kZsh = R"(#compdef owt
# Completion of owt for zsh.
_owt() {
  local -a found
  found=("${(@f)$("${words[1]}" completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  found=("${(@)${(@)found//:/\\:}/$'\t'/:}")
  _describe owt found
  (( CURRENT == 2 )) || [[ ${words[CURRENT]} == -* ]] || _files
}
if [ "$funcstack[1]" = _owt ]; then _owt "$@"; else compdef _owt owt; fi
)";

constexpr const char* kFish = R"(# Completion of owt for fish.
function __owt_words
  set -l words (commandline -opc)
  set -l current (commandline -ct)
  $words[1] completion words $words[2..-1] "$current" 2>/dev/null
end
complete -c owt -n 'test (count (commandline -opc)) -lt 2' -f
complete -c owt -a '(__owt_words)'
)";

struct Shell {
  const char *name, *script;
};
constexpr Shell kShells[] = {{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}};

// What a command prints to the standard output; empty if it fails.
std::string output_of(const Arguments& words) {
  std::ostringstream text;
  std::streambuf* const before = std::cout.rdbuf(text.rdbuf());
  try {
    run_program(words);
  } catch (const Error&) {
    text.str("");
  }
  std::cout.rdbuf(before);
  return text.str();
}

// A line of Options::kList.
struct Declared {
  std::string name, placeholder, help;

  bool is_option() const { return name.starts_with("--"); }
  bool takes_value() const { return is_option() && !placeholder.empty(); }
};

std::vector<Declared> declared_by(Arguments command) {
  command.push_back(Options::kList);
  std::vector<Declared> all;
  std::istringstream lines(output_of(command));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    Declared one;
    std::getline(std::getline(std::getline(fields, one.name, '\t'), one.placeholder, '\t'), one.help);
    all.push_back(one);
  }
  return all;
}

bool is_value(const std::string& word) {
  return !word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
}

// Adds the words of "cpu | cuda | auto"; nothing if the text is no such list.
void add_choices(const std::string& text, std::vector<HelpEntry>& found) {
  std::vector<HelpEntry> choices;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, '|');) {
    std::istringstream words(part);
    std::string word, more;
    words >> word;
    if (!(words >> more) && is_value(word)) choices.push_back({word, ""});
  }
  if (text.find('|') != std::string::npos) found.insert(found.end(), choices.begin(), choices.end());
}

// The words that an option takes: of the placeholder "auto|DIR", and of help that begins with "cpu | cuda | auto: ".
std::vector<HelpEntry> values_of_option(const Declared& option) {
  std::vector<HelpEntry> values;
  add_choices(option.placeholder, values);
  if (values.empty()) add_choices(option.help.substr(0, option.help.find_first_of(":;(")), values);
  return values;
}

std::string first_clause(const std::string& help) {
  const size_t end = std::min({help.find(" (default"), help.find(": "), help.find("; "), help.size()});
  return help.substr(0, end);
}

std::vector<HelpEntry> words_for(const Arguments& words) {
  const std::string first = words.size() > 1 ? words[0] : "";
  std::vector<HelpEntry> found;
  if (words.size() < 2 || first == "help") {
    found = program_commands();
    if (words.size() < 2) found.push_back({"--help", "list the commands"}), found.push_back({"--version", ""});
    return found;
  }
  if (first == "completion") {
    for (const Shell& shell : kShells) found.push_back({shell.name, ""});
    return found;
  }
  const size_t depth = first == "prepare" ? 2 : 1;
  if (words.size() <= depth) return prepare_kinds();
  const std::vector<Declared> all = declared_by({words.begin(), words.begin() + static_cast<std::ptrdiff_t>(depth)});
  const std::string &current = words.back(), &previous = words[words.size() - 2];
  for (const Declared& one : all)
    if (one.takes_value() && one.name == previous) return values_of_option(one);
  for (const Declared& one : all) {
    if (current.starts_with('-') && one.is_option()) found.push_back({one.name, first_clause(one.help)});
    if (!current.starts_with('-') && one.name == "CONFIG")
      for (const NamedRecipe& recipe : named_recipes()) found.push_back({recipe.name, ""});
  }
  return found;
}

void print_words(const Arguments& words) {
  for (const HelpEntry& each : words_for(words))
    if (each.name.starts_with(words.empty() ? "" : words.back()))
      std::cout << each.name << (each.about.empty() ? "" : "\t" + each.about) << '\n';
}

}  // namespace

int command_completion(const Arguments& arguments) {
  if (!arguments.empty() && arguments[0] == "words") {
    print_words({arguments.begin() + 1, arguments.end()});
    return 0;
  }
  Options options("owt completion",
                  "Prints a script that completes commands, options, their values and the names of recipes. For bash, "
                  "put `source <(owt completion bash)` into ~/.bashrc; for zsh, the same with zsh into ~/.zshrc, after "
                  "compinit; for fish, `owt completion fish | source` into ~/.config/fish/config.fish.");
  options.positional("SHELL", "bash | zsh | fish");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  for (const Shell& shell : kShells) {
    if (options.string("SHELL") != shell.name) continue;
    std::cout << shell.script;
    return 0;
  }
  throw UsageError(concat("SHELL is '", options.string("SHELL"), "', wanted bash, zsh or fish"));
}

}  // namespace owt
