// The command line of one subcommand: declares arguments, parses them, prints --help.
//
//   Options options("owt train", "Trains a network.");
//   options.positional("CONFIG", "the recipe, a TOML file");
//   options.option("workers", "K", "1", "ranks in this process");
//   if (!options.parse(arguments)) { print(options.help()); return 0; }   // --help
//   const int64_t workers = options.integer("workers", {.low = 1});
//
// Only long options (`--workers 4` or `--workers=4`), never abbreviated; `--` ends them. Every command has -q
// (--quiet), -v (--verbose) and -h (--help).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/system/check.h"
#include "src/system/config.h"

namespace owt {

// A wrong command line. The program prints it and exits with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

class Options {
 public:
  // command: as typed, "owt train". about: what it does, in a sentence.
  Options(std::string command, std::string about);

  // Arguments without a name, in the order of declaration: required ones, then optional ones, then at most one list.
  void positional(const std::string& name, const std::string& help);
  void optional_positional(const std::string& name, const std::string& help);
  void positional_list(const std::string& name, const std::string& help);  // one or more
  void optional_list(const std::string& name, const std::string& help);    // any number
  void command_line(const std::string& name, const std::string& help);     // one or more, after all options

  // Options, by name without dashes; `placeholder` stands for the value in the help.
  void option(const std::string& name, const std::string& placeholder, const std::string& help);
  void option(const std::string& name, const std::string& placeholder, const std::string& otherwise,
              const std::string& help);
  void repeated(const std::string& name, const std::string& placeholder, const std::string& help);
  // An option that sets `key` of the recipe, which the help names.
  void key_option(const std::string& name, const std::string& placeholder, const std::string& key,
                  const std::string& help);
  void flag(const std::string& name, const std::string& help);

  // Parses the words after the subcommand. Returns false if --help is among them; nothing was checked then. Sets how
  // much of the log is shown (log_level.h). Throws UsageError for an unknown option (with the nearest one), a missing
  // value, an option given twice, and missing or surplus arguments.
  bool parse(const std::vector<std::string>& arguments);

  // After parse({kList}), which returns false, a line for each argument and option instead, for completion.cpp: name,
  // placeholder and help, with tabs in between.
  std::string help() const;
  static constexpr const char* kList = "--list-options";

  // Call these after parse(), by name. They throw UsageError if the value has the wrong kind or is out of range. For an
  // option that was not given and has no default, only has() may be called.
  bool declares(const std::string& name) const;
  bool sets_key(const std::string& name, const std::string& key) const;  // declared so with key_option()
  bool has(const std::string& name) const;                               // given, or has a default
  bool given(const std::string& name) const;                             // on this command line
  std::string string(const std::string& name) const;
  int64_t integer(const std::string& name, Range range = {}) const;
  double number(const std::string& name, Range range = {}) const;
  bool boolean(const std::string& name) const;                   // for flags: whether it was given
  std::vector<std::string> list(const std::string& name) const;  // all values given under this name

  // Throws UsageError if option `name` is given without any of `others`; it would have no effect then.
  void only_with(const std::string& name, const std::vector<std::string>& others) const;

 private:
  enum class Kind {
    kValue,
    kRepeated,
    kFlag,
    kPositional,
    kOptionalPositional,
    kPositionalList,
    kOptionalList,
    kCommandLine
  };
  struct Declaration {
    std::string name, placeholder, help;
    Kind kind;
    bool has_default = false;
    std::string otherwise = {};
    std::string key = {};  // see key_option()
  };

  void declare(Declaration entry);
  const Declaration& entry(const std::string& name) const;
  void assign_positionals(const std::vector<std::string>& words);
  std::string usage_line() const;
  std::string list() const;
  std::string shown(const Declaration& entry) const;  // "--workers", or "CONFIG"
  [[noreturn]] void wrong(const std::string& message) const;
  [[noreturn]] void unknown_option(const std::string& word) const;
  [[noreturn]] void wrong_value(const std::string& name, const std::string& wanted) const;

  std::string command_, about_;
  std::vector<Declaration> entries_;
  bool lists_ = false;
  std::map<std::string, std::vector<std::string>> values_;  // the values as given
};

}  // namespace owt
