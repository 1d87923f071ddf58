// The command line of one subcommand: declares what it takes, parses, prints --help.
//
//   Options options("owt train", "Trains a network.");
//   options.positional("CONFIG", "the recipe, a TOML file");
//   options.option("workers", "K", "1", "ranks in this process");
//   if (!options.parse(arguments)) { print(options.help()); return 0; }   // --help
//   const int64_t workers = options.integer("workers", {.low = 1});
//
// Long options only (`--workers 4` or `--workers=4`), never abbreviated; `--` ends them; -h is --help.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/core/check.h"
#include "src/core/config.h"

namespace owt {

// A wrong command line. The program prints it and exits with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

class Options {
 public:
  // `command` as typed, "owt train"; `about`: what it does, in a sentence.
  Options(std::string command, std::string about);

  // Arguments without a name, in the order of declaration: required ones, then optional ones, then at most
  // one list.
  void positional(const std::string& name, const std::string& help);
  void optional_positional(const std::string& name, const std::string& help);
  void positional_list(const std::string& name, const std::string& help);  // one or more
  void optional_list(const std::string& name, const std::string& help);    // any number

  // Options, by name without dashes; `placeholder` stands for the value in the help.
  void option(const std::string& name, const std::string& placeholder, const std::string& help);
  void option(const std::string& name, const std::string& placeholder, const std::string& otherwise,
              const std::string& help);
  void repeated(const std::string& name, const std::string& placeholder, const std::string& help);
  void flag(const std::string& name, const std::string& help);

  // The words after the subcommand. False: --help is among them and nothing was checked. Throws UsageError
  // for an unknown option (with the nearest one), a missing value, an option given twice, missing or surplus
  // arguments.
  bool parse(const std::vector<std::string>& arguments);

  std::string help() const;

  // After parse(), by name. Throw UsageError where the value is of another kind or out of range. Only has()
  // may be asked about an option that was neither given nor has a default.
  bool declares(const std::string& name) const;
  bool has(const std::string& name) const;    // given, or there is a default
  bool given(const std::string& name) const;  // on this command line
  std::string string(const std::string& name) const;
  int64_t integer(const std::string& name, Range range = {}) const;
  double number(const std::string& name, Range range = {}) const;
  bool boolean(const std::string& name) const;                   // of a flag: was it given
  std::vector<std::string> list(const std::string& name) const;  // all that was given under this name

  // Throws UsageError where option `name` is given without any of `others`, without which it has no effect.
  void only_with(const std::string& name, const std::vector<std::string>& others) const;

 private:
  enum class Kind { kValue, kRepeated, kFlag, kPositional, kOptionalPositional, kPositionalList, kOptionalList };
  struct Entry {
    std::string name, placeholder, help;
    Kind kind;
    bool has_default = false;
    std::string otherwise = {};
  };

  void declare(Entry entry);
  const Entry& entry(const std::string& name) const;
  void assign_positionals(const std::vector<std::string>& words);
  std::string usage_line() const;
  std::string shown(const Entry& entry) const;  // "--workers", or "CONFIG"
  [[noreturn]] void wrong(const std::string& message) const;
  [[noreturn]] void unknown_option(const std::string& word) const;
  [[noreturn]] void wrong_value(const std::string& name, const std::string& wanted) const;

  std::string command_, about_;
  std::vector<Entry> entries_;
  std::map<std::string, std::vector<std::string>> values_;  // as given
};

}  // namespace owt
