#include "src/commands/options.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <cmath>

#include "src/system/log.h"
#include "src/system/log_level.h"
#include "src/system/own_words.h"
#include "src/system/terminal.h"

namespace owt {
namespace {

namespace po = boost::program_options;

constexpr size_t kHelpWidth = 100;

bool is_positional(auto kind) {
  using Kind = decltype(kind);
  return kind == Kind::kPositional || kind == Kind::kOptionalPositional || kind == Kind::kPositionalList ||
         kind == Kind::kOptionalList || kind == Kind::kCommandLine;
}

// Options of every command, with a short form.
bool is_common(const std::string& name) { return name == "quiet" || name == "verbose" || name == "help"; }

// "an integer from 0 to 5", "a number of at least 1", "a number that is more than 0".
std::string with_range(const std::string& what, const Range& range) {
  const std::string text = range_text(range);
  const char* between = text.empty()               ? ""
                        : text.starts_with("at ")  ? " of "
                        : text.starts_with("more") ? " that is "
                                                   : " from ";
  return concat(what, between, text);
}

template <class Number>
bool parse_number(const std::string& text, const Range& range, Number& value) {
  const char *begin = text.data(), *end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  const double found = static_cast<double>(value);
  return error == std::errc() && stop == end && found >= range.low && found <= range.high;
}

}  // namespace

Options::Options(std::string command, std::string about) : command_(std::move(command)), about_(std::move(about)) {
  flag("quiet", "print only results, warnings and errors");
  flag("verbose", "also print the details in the log file of a run");
  flag("help", "print this text");
}

void Options::declare(Declaration entry) {
  for (const Declaration& other : entries_) OWT_CHECK(other.name != entry.name, "declared twice: ", entry.name);
  entries_.push_back(std::move(entry));
}

void Options::positional(const std::string& name, const std::string& help) {
  declare({name, name, help, Kind::kPositional});
}

void Options::optional_positional(const std::string& name, const std::string& help) {
  declare({name, name, help, Kind::kOptionalPositional});
}

void Options::positional_list(const std::string& name, const std::string& help) {
  declare({name, name, help, Kind::kPositionalList});
}

void Options::optional_list(const std::string& name, const std::string& help) {
  declare({name, name, help, Kind::kOptionalList});
}

void Options::command_line(const std::string& name, const std::string& help) {
  declare({name, name, help, Kind::kCommandLine});
}

void Options::option(const std::string& name, const std::string& placeholder, const std::string& help) {
  declare({name, placeholder, help, Kind::kValue});
}

void Options::option(const std::string& name, const std::string& placeholder, const std::string& otherwise,
                     const std::string& help) {
  declare({name, placeholder, help, Kind::kValue, true, otherwise});
}

void Options::repeated(const std::string& name, const std::string& placeholder, const std::string& help) {
  declare({name, placeholder, help, Kind::kRepeated});
}

void Options::key_option(const std::string& name, const std::string& placeholder, const std::string& key,
                         const std::string& help) {
  declare({.name = name,
           .placeholder = placeholder,
           .help = concat(help, " (", key, ")"),
           .kind = Kind::kValue,
           .key = key});
}

void Options::flag(const std::string& name, const std::string& help) { declare({name, "", help, Kind::kFlag}); }

const Options::Declaration& Options::entry(const std::string& name) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Declaration& e) { return e.name == name; });
  OWT_CHECK(found != entries_.end(), command_, " declares no '", name, "'");
  return *found;
}

std::string Options::shown(const Declaration& entry) const {
  return is_positional(entry.kind) ? entry.name : "--" + entry.name;
}

void Options::wrong(const std::string& message) const {
  throw UsageError(concat(message, " (see '", command_, " --help')"));
}

void Options::unknown_option(const std::string& word) const {
  std::vector<std::string> names;
  for (const Declaration& e : entries_)
    if (!is_positional(e.kind)) names.push_back(e.name);
  const size_t dashes = std::min(word.find_first_not_of('-'), word.size());
  const std::string name = word.substr(dashes, word.find('=') - dashes), near = nearest(name, names);
  const std::string key = key_for(name);
  for (const Declaration& e : entries_)
    if (!key.empty() && e.key == key) wrong(concat("no option '", word, "'; did you mean '--", e.name, "'?"));
  if (key.find('.') != std::string::npos && declares("set") && !declares(key.substr(key.rfind('.') + 1)))
    wrong(concat("no option '", word, "'; the recipe's key is ", key, ": --set ", key, "=VALUE"));
  wrong(concat("no option '", word, "'", near.empty() ? "" : concat("; did you mean '--", near, "'?")));
}

bool Options::parse(const std::vector<std::string>& arguments) {
  values_.clear();
  lists_ = arguments == std::vector<std::string>{kList};
  if (lists_) return false;
  po::options_description known;
  for (const Declaration& e : entries_) {
    const std::string name = e.name + (is_common(e.name) ? concat(",", e.name.front()) : "");
    if (e.kind == Kind::kFlag) known.add_options()(name.c_str(), "");
    if (e.kind == Kind::kValue || e.kind == Kind::kRepeated)
      known.add_options()(name.c_str(), po::value<std::string>(), "");
  }
  std::vector<std::string> words;
  try {
    using namespace po::command_line_style;
    const auto parsed = po::command_line_parser(arguments)
                            .options(known)
                            .style(allow_long | long_allow_adjacent | long_allow_next | allow_short |
                                   allow_dash_for_short | short_allow_next)
                            .run();
    for (const auto& found : parsed.options) {
      // The library takes a following option as the value of an option without one.
      if (found.original_tokens.size() == 2 && found.original_tokens[1].starts_with("--"))
        wrong(concat("--", found.string_key, " has no value; give one that begins with dashes as --", found.string_key,
                     "=", found.original_tokens[1]));
      std::vector<std::string>& into = found.string_key.empty() ? words : values_[found.string_key];
      into.insert(into.end(), found.value.begin(), found.value.end());
      if (found.value.empty()) into.emplace_back();  // a flag
    }
  } catch (const po::unknown_option& e) {
    unknown_option(e.get_option_name());
  } catch (const po::error& e) {
    wrong(e.what());
  }
  if (given("help")) return false;
  if (given("quiet") && given("verbose")) wrong("--quiet and --verbose do not go together");
  show_log(given("quiet") ? LogLevel::kQuiet : given("verbose") ? LogLevel::kVerbose : LogLevel::kNormal);
  for (const Declaration& e : entries_)
    if (e.kind == Kind::kValue && given(e.name) && values_[e.name].size() > 1)
      wrong(concat("--", e.name, " is given ", values_[e.name].size(), " times, wanted at most once"));
  assign_positionals(words);
  return true;
}

void Options::assign_positionals(const std::vector<std::string>& words) {
  size_t next = 0;
  for (const Declaration& e : entries_) {
    if (!is_positional(e.kind)) continue;
    if (next == words.size()) {
      if (e.kind != Kind::kOptionalPositional && e.kind != Kind::kOptionalList)
        wrong(concat("missing ", e.name, ": ", e.help));
      continue;
    }
    const bool list = e.kind == Kind::kPositionalList || e.kind == Kind::kOptionalList || e.kind == Kind::kCommandLine;
    const size_t end = list ? words.size() : next + 1;
    values_[e.name].assign(words.begin() + static_cast<std::ptrdiff_t>(next),
                           words.begin() + static_cast<std::ptrdiff_t>(end));
    next = end;
  }
  if (next < words.size()) wrong(concat("unexpected argument '", words[next], "'"));
}

std::string Options::usage_line() const {
  std::string line = "Usage: " + command_;
  for (const Declaration& e : entries_) {
    if (e.kind == Kind::kPositional) line += " " + e.name;
    if (e.kind == Kind::kOptionalPositional) line += " [" + e.name + "]";
    if (e.kind == Kind::kPositionalList) line += " " + e.name + "...";
    if (e.kind == Kind::kOptionalList) line += " [" + e.name + "...]";
    if (e.kind == Kind::kCommandLine) return line + " [options] " + e.name + "...\n";
  }
  return line + " [options]\n";
}

std::string Options::list() const {
  std::string lines;
  for (const Declaration& e : entries_)
    lines += concat(shown(e), '\t', is_positional(e.kind) ? "" : e.placeholder, '\t', e.help, '\n');
  return lines;
}

std::string Options::help() const {
  if (lists_) return list();
  const auto left = [this](const Declaration& e) {
    return (is_common(e.name) ? concat("  -", e.name.front(), ", ") : "  ") + shown(e) +
           (is_positional(e.kind) || e.placeholder.empty() ? "" : " " + e.placeholder);
  };
  size_t width = 0;
  for (const Declaration& e : entries_) width = std::max(width, left(e).size() + 2);

  const auto line = [&](const Declaration& e) {
    std::string text = e.help;
    if (e.has_default && !e.otherwise.empty()) text += " (default: " + e.otherwise + ")";
    if (e.kind == Kind::kRepeated) text += " (may be repeated)";
    std::string start = left(e);
    start.resize(width, ' ');
    return start + folded(text, kHelpWidth, width, width) + "\n";
  };
  std::string arguments, options, last;
  for (const Declaration& e : entries_)
    (is_positional(e.kind) ? arguments : is_common(e.name) ? last : options) += line(e);
  return usage_line() + "\n" + folded(about_, kHelpWidth, 0) + "\n" +
         (arguments.empty() ? "" : "\nArguments:\n" + arguments) + "\nOptions:\n" + options + last;
}

bool Options::declares(const std::string& name) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Declaration& e) { return e.name == name; });
}

bool Options::sets_key(const std::string& name, const std::string& key) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Declaration& e) { return e.name == name && e.key == key; });
}

bool Options::given(const std::string& name) const { return values_.count(entry(name).name) > 0; }

bool Options::has(const std::string& name) const { return given(name) || entry(name).has_default; }

std::string Options::string(const std::string& name) const {
  OWT_CHECK(has(name), "'", name, "' of ", command_, " was neither given nor has a default");
  return given(name) ? values_.at(name).front() : entry(name).otherwise;
}

void Options::wrong_value(const std::string& name, const std::string& wanted) const {
  wrong(concat(shown(entry(name)), " is '", string(name), "', wanted ", wanted));
}

int64_t Options::integer(const std::string& name, Range range) const {
  int64_t value = 0;
  if (!parse_number(string(name), range, value)) wrong_value(name, with_range("an integer", range));
  return value;
}

double Options::number(const std::string& name, Range range) const {
  double value = 0;
  if (!parse_number(string(name), range, value)) wrong_value(name, with_range("a number", range));
  return value;
}

bool Options::boolean(const std::string& name) const {
  OWT_CHECK(entry(name).kind == Kind::kFlag, "'", name, "' is no flag");
  return given(name);
}

std::vector<std::string> Options::list(const std::string& name) const {
  const Kind kind = entry(name).kind;
  OWT_CHECK(kind != Kind::kFlag, "'", name, "' has no values");
  return given(name) ? values_.at(name) : std::vector<std::string>{};
}

void Options::only_with(const std::string& name, const std::vector<std::string>& others) const {
  if (!given(name) || std::any_of(others.begin(), others.end(), [&](const auto& other) { return given(other); }))
    return;
  std::string wanted;
  for (const std::string& other : others) wanted += concat(wanted.empty() ? "" : " or ", shown(entry(other)));
  wrong(concat(shown(entry(name)), " has an effect only with ", wanted, ", which is not given"));
}

}  // namespace owt
