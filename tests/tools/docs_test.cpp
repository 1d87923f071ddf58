// The pages that people read name only what there is: files, commands, options, keys, strategies; and all of these.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "src/net/layer_types.h"
#include "src/plan/strategy.h"
#include "tests/support/message_of.h"
#include "tests/support/models.h"
#include "tests/support/program.h"
#include "tests/support/recipe_keys.h"

namespace owt::docs_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

const fs::path kRoot = OWT_SOURCE_DIR;

struct Page {
  std::string name;                // README.md, docs/recipes.md
  std::vector<std::string> lines;  // outside of code blocks
  std::vector<std::string> code;   // what stands between backticks, and the lines of code blocks of no language
  std::vector<std::string> links;
};

std::vector<std::string> all_of(const std::string& text, const std::regex& pattern, size_t group = 0) {
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at)
    found.push_back((*at)[group].str());
  return found;
}

Page read_page(const std::string& name) {
  Page page{name, {}, {}, {}};
  std::istringstream file(read_file((kRoot / name).string()));
  std::string prose, block;  // block: the beginning of the code block that the line is in
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```")) {
      block = block.empty() ? line : "";
    } else if (block == "```") {
      const bool continues = !page.code.empty() && page.code.back().ends_with("\\");
      continues ? page.code.back() += line : page.code.emplace_back(line);
    } else if (block.empty()) {
      page.lines.push_back(line);
      prose += line + " ";
    }
  }
  for (const std::string& span : all_of(prose, std::regex("`([^`]+)`"), 1)) page.code.push_back(span);
  page.links = all_of(prose, std::regex("\\]\\(([^)]+)\\)"), 1);
  return page;
}

std::vector<Page> read_pages() {
  std::vector<Page> pages{read_page("README.md"), read_page("CONTRIBUTING.md")};
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kRoot / "docs"))
    if (entry.path().extension() == ".md") pages.push_back(read_page(fs::relative(entry.path(), kRoot).string()));
  return pages;
}

const std::vector<Page>& pages() {
  static const std::vector<Page> all = read_pages();
  return all;
}

const Page& page(const std::string& name) {
  for (const Page& each : pages())
    if (each.name == name) return each;
  fail("no page ", name);
}

std::vector<std::string> words(const std::string& text) { return all_of(text, std::regex("[^\\s]+")); }

// A path of the repository, less what follows it in a sentence; empty: the word is none.
std::string path_in(const std::string& word) {
  static const std::regex path(
      "^((src|layers|data|tools|tests|configs|docs|\\.ci)/[\\w./*-]*|[A-Z]\\w+\\.(md|json)|CMakeLists.txt)");
  std::smatch found;
  if (!std::regex_search(word, found, path)) return "";
  std::string name = found[1].str();
  while (name.back() == '.') name.pop_back();
  return name;
}

// What a page writes for any name, what docs/add_a_layer.md adds, and the name of a test.
bool stands_for_others(const std::string& path) {
  return std::regex_search(path, std::regex("/X/|/y[_.]|NAME|leaky_relu|_of_[0-9]"));
}

bool there_is(const std::string& path) {
  const size_t star = path.find('*');
  if (star == std::string::npos) return fs::exists(kRoot / path);
  const std::string end = path.substr(star + 1);
  for (const fs::directory_entry& entry : fs::directory_iterator(kRoot / fs::path(path).parent_path()))
    if (entry.path().string().ends_with(end)) return true;
  return false;
}

TEST(Docs, NameFilesOfTheRepository) {
  size_t found = 0;
  for (const Page& each : pages())
    for (const std::string& code : each.code)
      for (const std::string& word : words(code)) {
        const std::string path = path_in(word);
        if (path.empty() || stands_for_others(path)) continue;
        EXPECT_TRUE(there_is(path)) << each.name << " names " << path;
        ++found;
      }
  EXPECT_GT(found, 100u);
}

// The name that a heading has in links: lower case, without punctuation, words joined by hyphens.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading.substr(heading.find_first_not_of("# ")))
    if (c == ' ' || c == '-')
      anchor += '-';
    else if (std::isalnum(static_cast<unsigned char>(c)) || c == '_')
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return anchor;
}

bool has_heading(const Page& page, const std::string& anchor) {
  return std::ranges::any_of(
      page.lines, [&](const std::string& line) { return line.starts_with("#") && anchor_of(line) == anchor; });
}

TEST(Docs, LinkToFilesAndHeadingsOfTheRepository) {
  size_t anchors = 0;
  for (const Page& each : pages())
    for (const std::string& link : each.links) {
      if (link.starts_with("http")) continue;
      const std::string file = link.substr(0, link.find('#'));
      const fs::path to =
          file.empty() ? fs::path(each.name) : (fs::path(each.name).parent_path() / file).lexically_normal();
      EXPECT_TRUE(fs::exists(kRoot / to)) << each.name << " links to " << link;
      if (file.size() == link.size()) continue;
      EXPECT_TRUE(has_heading(page(to.string()), link.substr(file.size() + 1))) << each.name << " links to " << link;
      ++anchors;
    }
  EXPECT_GT(anchors, 50u);
}

TEST(Docs, TheResultsAreShort) { EXPECT_LE(text_lines((kRoot / "docs/results.md").string()).size(), 250u); }

TEST(Docs, ListEveryFileOfMeasurements) {
  const std::string index = read_file((kRoot / "docs/measurements/README.md").string());
  for (const fs::directory_entry& entry : fs::directory_iterator(kRoot / "docs/measurements")) {
    const std::string name = entry.path().filename().string();
    if (name == "README.md") continue;
    EXPECT_THAT(index, HasSubstr("[" + name + "](" + name + ")"));
  }
}

// Options as they stand in a text.
std::set<std::string> options_in(const std::string& text) {
  const std::vector<std::string> all = all_of(text, std::regex("(^|[\\s\\[(|])(--[a-z][a-z0-9-]*)"), 2);
  return {all.begin(), all.end()};
}

class DocsOfCommands : public ProgramTest {
 protected:
  const std::string& help(const std::string& command) {
    const auto [at, is_new] = helps_.try_emplace(command);
    if (is_new) at->second = command == "log-to" ? help_of_package() : owt(command + " --help").out;
    return at->second;
  }
  std::vector<std::string> commands() { return all_of(help(""), std::regex("\n  ([a-z-]+)  +[a-z]"), 1); }

 private:
  // owt log-to is a command of the Python package.
  std::string help_of_package() const {
    const std::string out = file("log_to");
    const std::string package = (kRoot / "tools/package").string();
    const std::string command = concat("PYTHONPATH=", package, " python3 -B -m owt log-to --help >", out);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return read_file(out);
  }

  std::map<std::string, std::string> helps_;
};

TEST_F(DocsOfCommands, NameCommandsAndOptionsThatHelpLists) {
  std::vector<std::string> known = commands();
  known.emplace_back("log-to");
  const std::regex called("(^|[\\s/(])owt ([a-z][a-z-]*)( (imagenet|folder|list|stats|synthetic|cifar)\\b)?([^#|;&]*)");
  size_t options = 0;
  std::smatch at, inner;
  for (const Page& each : pages())
    for (const std::string& code : each.code)
      for (std::string rest = code; std::regex_search(rest, at, called);) {
        const std::string command = at[2], kind = at[3];
        std::string own = at[5], after = at.suffix();
        // The command of owt launch has options of its own.
        if (std::regex_search(own, inner, called)) {
          const auto begin = static_cast<size_t>(inner.position());
          after = own.substr(begin) + after;
          own.resize(begin);
        }
        rest = after;
        ASSERT_TRUE(std::count(known.begin(), known.end(), command)) << each.name << ": " << code;
        for (const std::string& option : options_in(own)) {
          const std::string of = help(command + (command == "prepare" ? kind : ""));
          EXPECT_TRUE(options_in(of).contains(option)) << each.name << ": owt " << command << " " << option;
          ++options;
        }
      }
  EXPECT_GT(options, 30u);
}

// Their times alone, which want no data; the filter kkt wants gradients. Words in capitals stand for something.
TEST_F(DocsOfCommands, SimulationsCanBeRun) {
  const std::regex placeholder(" [A-Z]+(\\s|$)"), called("(?:^|\n)owt simulate ([a-z0-9_]+)( [^\n#|;&]*)");
  int run = 0;
  for (const Page& each : pages())
    for (const std::string& code : each.code) {
      const std::string joined = std::regex_replace(code, std::regex("\\\\\\s*"), "");
      for (std::sregex_iterator at(joined.begin(), joined.end(), called), end; at != end; ++at) {
        const std::string words = (*at)[2];
        if (std::regex_search(words, placeholder)) continue;
        const std::string times = std::regex_replace(words, std::regex("--out \\S+|--filter kkt\\S+|--times-only"), "");
        const Result result = owt(concat("simulate ", config((*at)[1].str() + ".toml"), times,
                                         " --times-only --steps 2 --out ", file(std::to_string(++run))));
        EXPECT_EQ(result.code, 0) << each.name << ": " << at->str() << "\n" << result.err;
      }
    }
  EXPECT_GE(run, 5);
}

TEST_F(DocsOfCommands, TheReadmeListsEveryCommand) {
  const std::string readme = read_file((kRoot / "README.md").string());
  ASSERT_GT(commands().size(), 10u);
  for (const std::string& command : commands()) EXPECT_THAT(readme, HasSubstr("| `owt " + command));
}

TEST(Docs, TheReadmeIsShort) {
  const std::vector<std::string> lines = text_lines((kRoot / "README.md").string());
  EXPECT_LE(lines.size(), 150u);
  for (const std::string& line : lines) EXPECT_LE(line.size(), 120u) << line;
}

TEST(Docs, ExplainAndDrawEveryStrategy) {
  const std::string choosing = read_file((kRoot / "docs/choosing.md").string());
  const std::string strategies = read_file((kRoot / "docs/strategies.md").string());
  for (const Strategy strategy : all_strategies()) {
    const std::string name = name_of(strategy), drawing = "drawings/" + name + ".svg";
    EXPECT_THAT(choosing, HasSubstr("\n| `" + name + "` |"));
    EXPECT_THAT(strategies, HasSubstr("\n### `" + name + "`\n"));
    EXPECT_THAT(strategies, HasSubstr("(" + drawing + ")"));
    EXPECT_THAT(read_file((kRoot / "docs" / drawing).string()), HasSubstr(">" + name + " of alexnet_owt on 4 workers"));
  }
}

// What a drawing shows, in order, without the times.
std::vector<std::string> drawn_in(const std::string& svg) {
  return all_of(svg, std::regex("<title>([^<]*), [^ ,]* ms from"), 1);
}

TEST_F(DocsOfCommands, DrawingsShowTheOrderThatIsRun) {
  for (const Strategy strategy : all_strategies()) {
    const std::string name = name_of(strategy), drawing = file(name + ".svg");
    const Result drawn = owt("plan " + config("models/alexnet_owt.toml") +
                             " --workers 4 --batch 512 --gpu A100 --hosts 4 --bandwidth 25Gbit --latency 30us"
                             " --parallel " +
                             name + " --draw " + drawing);
    ASSERT_EQ(drawn.code, 0) << drawn.err;
    const std::vector<std::string> wanted = drawn_in(read_file(drawing));
    EXPECT_GT(wanted.size(), 20u);
    EXPECT_EQ(drawn_in(read_file((kRoot / "docs/drawings" / (name + ".svg")).string())), wanted)
        << "docs/strategies.md has the command that draws docs/drawings/" << name << ".svg anew";
  }
}

TEST_F(DocsOfCommands, DrawingsOfNetworksAreThoseThatAreDrawn) {
  for (const auto& [name, words] : {std::pair("net-owt-d", "imagenet_alexnet.toml --workers 8 --parallel owt-d"),
                                    {"net-resnet50", "imagenet_resnet50.toml --workers 1 --parallel dp"}}) {
    const std::string drawing = file(concat(name, ".svg"));
    const Result drawn = owt(concat("inspect ", config(words), " --draw ", drawing));
    ASSERT_EQ(drawn.code, 0) << drawn.err;
    EXPECT_EQ(read_file((kRoot / "docs/drawings" / concat(name, ".svg")).string()), read_file(drawing))
        << "docs/strategies.md has the command that draws docs/drawings/" << name << ".svg anew";
  }
}

// A line of a table of docs/recipes.md or docs/models.md.
struct Row {
  std::string section, table;  // the heading above, and the first cell of the table's head
  std::vector<std::string> cells;
};

std::vector<std::string> cells_of(const std::string& line) {
  return all_of(line, std::regex("\\|\\s*([^|]*[^|\\s])?\\s*(?=\\|)"), 1);
}

std::vector<Row> rows_of_recipes() {
  std::vector<Row> rows;
  std::string section, table;
  for (const std::string name : {"docs/recipes.md", "docs/models.md"})
    for (const std::string& line : page(name).lines) {
      if (line.starts_with("## ")) section = line.substr(3);
      if (!line.starts_with("|")) table.clear();
      if (!line.starts_with("|") || line.starts_with("|---")) continue;
      const std::vector<std::string> cells = cells_of(line);
      table.empty() ? table = cells.at(0) : (rows.push_back({section, table, cells}), table);
    }
  return rows;
}

// Names between backticks, outside of brackets.
std::vector<std::string> names_in(const std::string& cell) {
  return all_of(std::regex_replace(cell, std::regex("\\([^)]*\\)"), ""), std::regex("`(\\w+)`"), 1);
}

// The keys in the first column of a table.
std::set<std::string> keys_on_page(const std::string& section, const std::string& table) {
  std::set<std::string> keys;
  for (const Row& row : rows_of_recipes())
    if (row.section == section && row.table == table)
      for (const std::string& key : names_in(row.cells[0])) keys.insert(key);
  return keys;
}

// The keys that an error lists which says that there is no such key.
std::set<std::string> keys_in(const std::string& error) {
  std::smatch found;
  if (!std::regex_search(error, found, std::regex("no key 'zz' \\(keys[^:]*: ([^)]*)\\)"))) fail(error);
  const std::vector<std::string> keys = all_of(found[1].str(), std::regex("\\w+"));
  return {keys.begin(), keys.end()};
}

std::set<std::string> known_keys(const std::string& table, const std::vector<Overrides>& variants) {
  std::set<std::string> known;
  for (Overrides changes : variants) {
    changes.emplace_back(table + ".zz", "1");
    known.merge(keys_in(message_of([&] { small_settings(kLeastRecipe, changes); })));
  }
  return known;
}

const std::vector<Overrides> kFormats = {{{"data.format", "synthetic"}},
                                         {{"data.format", "cifar10"}, {"data.augment.crop", "8"}},
                                         {{"data.format", "shards"}}};
const std::vector<std::pair<std::string, Overrides>> kSchedules = {
    {"constant", {}},
    {"step", {{"schedule.every", "1"}, {"schedule.factor", "0.1"}}},
    {"multistep", {{"schedule.milestones", "[1]"}, {"schedule.factor", "0.1"}}},
    {"poly", {{"schedule.power", "1"}}},
    {"cosine", {}},
    {"exp", {{"schedule.target_factor", "10"}}},
    {"dexp", {{"schedule.target_factor", "10"}, {"schedule.steps", "2"}}},
    {"steps", {{"schedule.until", "[1]"}, {"schedule.factors", "[1, 0.1]"}}},
    {"linear", {}},
    {"plateau", {{"schedule.factor", "0.1"}, {"schedule.patience", "1"}}}};

TEST(DocsOfRecipes, ListTheKeysOfEverySection) {
  const std::vector<Overrides> as_it_is = {{}};
  for (const std::string section : {"loss", "optimizer", "parallel", "run"})
    EXPECT_EQ(keys_on_page("`[" + section + "]`", "key"), known_keys(section, as_it_is)) << section;
  std::set<std::string> data = known_keys("data", kFormats);
  EXPECT_EQ(keys_on_page("`[data]`", "key"), data);
  EXPECT_EQ(keys_on_page("`[data]`", "key of `augment`"), known_keys("data.augment", kFormats));
}

TEST(DocsOfRecipes, ListTheKeysOfEverySchedule) {
  const std::set<std::string> common = keys_on_page("`[schedule]`", "key");
  size_t types = 0;
  for (const Row& row : rows_of_recipes()) {
    if (row.section != "`[schedule]`" || row.table != "`type`") continue;
    const std::string type = names_in(row.cells[0]).at(0);
    std::set<std::string> keys = common;
    for (const std::string& key : names_in(row.cells[1])) keys.insert(key);
    const auto with = std::find_if(kSchedules.begin(), kSchedules.end(), [&](auto& s) { return s.first == type; });
    ASSERT_NE(with, kSchedules.end()) << type;
    Overrides changes = with->second;
    changes.emplace_back("schedule.type", type);
    EXPECT_EQ(keys, known_keys("schedule", {changes})) << type;
    ++types;
  }
  EXPECT_EQ(types, kSchedules.size());
}

// Also the defaults in brackets.
TEST(DocsOfRecipes, ListTheKeysOfEveryOptimizer) {
  size_t types = 0;
  for (const Row& row : rows_of_recipes()) {
    if (row.section != "`[optimizer]`" || row.table != "`type`") continue;
    const Overrides type{{"optimizer.type", names_in(row.cells[0]).at(0)}};
    const std::vector<std::string> keys = names_in(row.cells[1]);
    const std::vector<std::string> defaults = all_of(row.cells[1], std::regex("\\(([^)]*)\\)"), 1);
    ASSERT_EQ(keys.size(), defaults.size()) << type[0].second;
    std::set<std::string> all{"type",     "learning_rate", "clip",      "ema",   "ema_every",
                              "ema_ramp", "ema_warmup",    "lookahead", "freeze"};
    Overrides said = type;
    for (size_t i = 0; i < keys.size(); ++i) {
      all.insert(keys[i]);
      said.emplace_back("optimizer." + keys[i], defaults[i]);
    }
    EXPECT_EQ(all, known_keys("optimizer", {type}));
    const OptimizerSettings as_said = small_settings(kLeastRecipe, said).optimizer;
    const OptimizerSettings without = small_settings(kLeastRecipe, type).optimizer;
    EXPECT_EQ(as_said, without) << type[0].second;
    ++types;
  }
  EXPECT_EQ(types, 8u);
}

// A key that is set to the default on the page changes nothing.
TEST(DocsOfRecipes, SayTheDefaults) {
  std::map<std::string, std::string> defaults;
  for (const Row& row : rows_of_recipes()) {
    const std::vector<std::string> section = all_of(row.section, std::regex("^`\\[(\\w+)\\]`$"), 1);
    const std::vector<std::string> values = all_of(row.cells.at(1), std::regex("`([^`]+)`"), 1);
    const std::vector<std::string> keys = names_in(row.cells[0]);
    if (section.empty() || row.table != "key" || values.size() != keys.size()) continue;
    for (size_t i = 0; i < keys.size(); ++i) defaults[section[0] + "." + keys[i]] = values[i];
  }
  for (const RecipeKey& key : recipe_keys()) {
    if (!key.with.empty()) continue;  // a key of one type of optimizer: tested above
    ASSERT_TRUE(defaults.contains(key.key)) << key.key;
    EXPECT_EQ(shown(key, {{key.key, defaults[key.key]}}), key.otherwise) << key.key;
  }
}

const std::map<std::string, std::string> kLayers = {
    {"activation", "kind = 'tanh'"},
    {"conv", "out = 2, kernel = 1"},
    {"local", "out = 2, kernel = 1"},
    {"dense", "out = 2"},
    {"max_pool", "kernel = 2"},
    {"avg_pool", "kernel = 2"},
    {"cosine", "out = 2"},
    {"dropout", "rate = 0.5"},
    {"drop_path", "rate = 0.5"},
    {"residual", "body = [{ name = 'a', type = 'relu' }]"},
    {"branches", "branches = [{}, {}]"},
    {"scale", "body = [{ name = 'a', type = 'global_avg_pool' }]"},
};

TEST(DocsOfRecipes, ListTheKeysOfEveryLayer) {
  std::map<std::string, std::set<std::string>> on_page;
  for (const Row& row : rows_of_recipes()) {
    if (row.section != "Layers" || row.table != "type") continue;
    std::set<std::string> keys{"name", "type"};
    for (const std::string& key : names_in(row.cells[1])) keys.insert(key);
    if (row.cells[1].find("weight keys") != std::string::npos) keys.insert({"init", "lr", "decay", "bias"});
    for (const std::string& type : names_in(row.cells[0])) on_page[type] = keys;
  }
  for (const LayerType& type : net_layer_types()) {
    const auto with = kLayers.find(type.type);
    const std::string layer = concat("{ name = 'l', zz = 1, type = '", type.type, "'",
                                     with == kLayers.end() ? "" : ", " + with->second, " }");
    EXPECT_EQ(on_page[type.type], keys_in(message_of([&] { model_of("[1, 4, 4]", 2, layer); }))) << type.type;
  }
  EXPECT_EQ(on_page.size(), net_layer_types().size());
}

TEST(DocsOfRecipes, ListTheKeysOfEveryActivation) {
  std::set<std::string> kinds;
  for (const Row& row : rows_of_recipes()) {
    if (row.table != "`kind` of `activation`") continue;
    std::set<std::string> keys{"name", "type", "kind"};
    for (const std::string& key : names_in(row.cells[2])) keys.insert(key);
    for (const std::string& kind : names_in(row.cells[0])) {
      const std::string layer = concat("{ name = 'l', zz = 1, type = 'activation', kind = '", kind, "' }");
      EXPECT_EQ(keys, keys_in(message_of([&] { model_of("[1, 4, 4]", 2, layer); }))) << kind;
      kinds.insert(kind);
    }
  }
  const std::string known =
      message_of([] { model_of("[1, 4, 4]", 2, "{ name = 'l', type = 'activation', kind = '' }"); });
  for (const std::string& kind : kinds) EXPECT_THAT(known, HasSubstr(kind));
  EXPECT_EQ(kinds.size(), 12u);
}

TEST(DocsOfRecipes, ListTheKeysOfAModel) {
  const std::string model = model_text("[1, 4, 4]", 2, "{ name = 'fc', type = 'dense', out = 2 }");
  EXPECT_EQ(keys_on_page("Keys of a model", "key of a model"),
            keys_in(message_of([&] { model_of("zz = 1\n" + model); })));
}

TEST(DocsOfRecipes, ListTheInitializers) {
  const std::map<std::string, std::string> needs = {
      {"constant", "value = 1"}, {"gaussian", "std = 1"}, {"uniform", "low = 0, high = 1"}};
  size_t types = 0;
  for (const Row& row : rows_of_recipes()) {
    if (!row.table.starts_with("`init")) continue;
    const std::string type = names_in(row.cells[0]).at(0);
    std::set<std::string> keys{"type"};
    for (const std::string& key : names_in(row.cells[1])) keys.insert(key);
    const std::string layer = concat("{ name = 'l', type = 'conv', kernel = 1, out = 2, init = { zz = 1, type = '",
                                     type, "'", needs.contains(type) ? ", " + needs.at(type) : "", " } }");
    EXPECT_EQ(keys, keys_in(message_of([&] { model_of("[1, 4, 4]", 2, layer); }))) << type;
    ++types;
  }
  EXPECT_EQ(types, 7u);
}

// The first block of TOML of a page.
std::string example_of(const std::string& name) {
  const std::string text = read_file((kRoot / name).string());
  const size_t begin = text.find("```toml\n") + 8;
  return text.substr(begin, text.find("```", begin) - begin);
}

TEST(DocsOfRecipes, BeginWithARecipeAndAModelThatCanBeRead) {
  const TempFolder folder;
  fs::copy(kRoot / "configs/models", folder.file("models"));
  write_bytes(folder.file("recipe.toml"), example_of("docs/recipes.md"));
  EXPECT_EQ(read_settings(folder.file("recipe.toml")).model.name, "cifar10_quick");
  write_bytes(folder.file("model.toml"), example_of("docs/models.md"));
  EXPECT_EQ(read_settings(folder.file("model.toml")).model.name, "small");
}

}  // namespace
}  // namespace owt::docs_test
