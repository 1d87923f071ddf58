#include "src/system/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "src/system/check.h"
#include "src/system/config_values.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::config_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const char* const kModel = R"(name = "net"
classes = 10

[data]
batch = 64
rate = 0.5
shuffle = true
sizes = [1, 2, 3]
scales = [1, 0.5]

[[layer]]
name = "conv1"
kernel = 5

[[layer]]
name = "conv2"
kernal = 3
)";

Config model() { return Config::text(kModel, "net.toml"); }

TEST(Config, ReadsEveryKindOfValue) {
  Config config = model();
  EXPECT_EQ(config.string("name"), "net");
  EXPECT_EQ(config.integer("classes"), 10);
  Config data = config.table("data");
  EXPECT_EQ(data.integer("batch", {.low = 1, .high = 64}), 64);
  EXPECT_EQ(data.number("rate"), 0.5);
  EXPECT_EQ(data.number("batch"), 64.0);  // an integer is a number
  EXPECT_TRUE(data.boolean("shuffle", false));
  EXPECT_THAT(data.integers("sizes"), ElementsAre(1, 2, 3));
  EXPECT_THAT(data.numbers("scales"), ElementsAre(1.0, 0.5));
  const std::vector<Config> layers = config.tables("layer");
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(Config(layers[1]).string("name"), "conv2");
}

TEST(Config, TakesTheDefaultWhereAKeyIsMissing) {
  Config config = model();
  EXPECT_EQ(config.integer("none", 7), 7);
  EXPECT_EQ(config.number("none", 0.25), 0.25);
  EXPECT_TRUE(config.boolean("none", true));
  EXPECT_EQ(config.string("none", "x"), "x");
  EXPECT_EQ(config.word("none", "a", {"a", "b"}), "a");
  EXPECT_TRUE(config.tables("none").empty());
  EXPECT_EQ(config.table("none").integer("inner", 3), 3);
  EXPECT_EQ(config.integer("classes", 7), 10);  // it is there: no default
}

TEST(Config, TellsWhatAKeyHolds) {
  const Config config = model();
  EXPECT_TRUE(config.has("data"));
  EXPECT_TRUE(config.is_table("data"));
  EXPECT_FALSE(config.is_array("data"));
  EXPECT_TRUE(config.is_array("layer"));
  EXPECT_TRUE(config.is_string("name"));
  EXPECT_FALSE(config.is_string("classes"));
  EXPECT_FALSE(config.has("none"));
  EXPECT_FALSE(config.is_table("none"));
  const Config numbers = Config::text("bound = inf\nother = [-inf]\nleast = -inf\nfinite = 1.5\nword = 'inf'");
  EXPECT_TRUE(numbers.is_infinite("bound"));
  for (const char* key : {"other", "least", "finite", "word", "none"}) EXPECT_FALSE(numbers.is_infinite(key)) << key;
}

TEST(Config, NamesFileLineAndTableOfAWrongType) {
  Config data = model().table("data");
  EXPECT_EQ(message_of([&] { data.integer("rate"); }), "net.toml:6: [data]: 'rate' is a number, wanted an integer");
  EXPECT_EQ(message_of([&] { data.string("batch"); }), "net.toml:5: [data]: 'batch' is an integer, wanted a string");
  EXPECT_EQ(message_of([&] { data.boolean("rate", true); }),
            "net.toml:6: [data]: 'rate' is a number, wanted true or false");
  EXPECT_EQ(message_of([&] { data.number("shuffle"); }),
            "net.toml:7: [data]: 'shuffle' is true or false, wanted a number");
  EXPECT_EQ(message_of([&] { data.table("batch"); }), "net.toml:5: [data]: 'batch' is an integer, wanted a table");
  EXPECT_THAT(message_of([&] { data.tables("batch"); }), StartsWith("net.toml:5: [data]: 'batch'"));
  EXPECT_THAT(message_of([&] { data.integers("scales"); }), HasSubstr("array of integers"));
  EXPECT_THAT(message_of([&] { data.numbers("batch"); }), HasSubstr("array of numbers"));
}

TEST(Config, ABooleanInAnArrayIsNoNumber) {
  Config config = Config::text("values = [1, true]", "x.toml");
  EXPECT_THAT(message_of([&] { config.numbers("values"); }), HasSubstr("array of numbers"));
  EXPECT_THAT(message_of([&] { config.integers("values"); }), HasSubstr("array of integers"));
}

TEST(Config, NamesFileLineAndRangeOfAValueOutOfRange) {
  Config data = model().table("data");
  EXPECT_EQ(message_of([&] { data.integer("batch", {.low = 1, .high = 32}); }),
            "net.toml:5: [data]: 'batch' is 64, wanted 1 to 32");
  EXPECT_EQ(message_of([&] { data.number("rate", {.low = 1}); }),
            "net.toml:6: [data]: 'rate' is 0.5, wanted at least 1");
  EXPECT_EQ(message_of([&] { data.number("rate", 0.0, {.high = 0.25}); }),
            "net.toml:6: [data]: 'rate' is 0.5, wanted at most 0.25");
  Config bad = Config::text("a = nan\nb = inf", "x.toml");
  EXPECT_THAT(message_of([&] { bad.number("a"); }), StartsWith("x.toml:1: 'a' is"));
  EXPECT_THAT(message_of([&] { bad.number("b"); }), StartsWith("x.toml:2: 'b' is"));
}

TEST(Config, SaysRangesAsPeopleWriteThem) {
  Config config = Config::text("a = 0\nb = -nan\nc = 99999999", "x.toml");
  const double above_0 = std::numeric_limits<double>::min();
  EXPECT_EQ(message_of([&] { config.number("a", {.low = above_0}); }), "x.toml:1: 'a' is 0, wanted more than 0");
  EXPECT_EQ(message_of([&] { config.number("a", {.low = above_0, .high = 1}); }),
            "x.toml:1: 'a' is 0, wanted more than 0 and at most 1");
  EXPECT_EQ(message_of([&] { config.number("b", {.low = above_0}); }), "x.toml:2: 'b' is nan, wanted more than 0");
  EXPECT_EQ(message_of([&] { config.number("b"); }), "x.toml:2: 'b' is nan, wanted a number");
  EXPECT_EQ(message_of([&] { config.integer("c", {.low = 1, .high = 1 << 24}); }),
            "x.toml:3: 'c' is 99999999, wanted 1 to 16777216");
}

TEST(Config, NamesTheTableOfAMissingKey) {
  Config data = model().table("data");
  EXPECT_EQ(message_of([&] { data.integer("workers"); }), "net.toml:4: [data]: key 'workers' is missing");
  EXPECT_THAT(message_of([&] { data.table("inner").string("name"); }),
              AllOf(StartsWith("net.toml"), HasSubstr("[data].inner"), HasSubstr("'name' is missing")));
}

TEST(Config, FindsAMissingKeyUnderAMisspeltName) {
  Config layer = model().tables("layer")[1];
  EXPECT_EQ(message_of([&] { layer.integer("kernel"); }),
            "net.toml:17: [[layer]]: key 'kernel' is missing; did you mean it by 'kernal'?");
}

// Keys that were read have another meaning already.
TEST(Config, AMissingKeyIsNotSuggestedUnderANameThatWasRead) {
  Config layer = model().tables("layer")[0];
  EXPECT_EQ(layer.integer("kernel"), 5);
  EXPECT_EQ(message_of([&] { layer.integer("kernels"); }), "net.toml:11: [[layer]]: key 'kernels' is missing");
}

TEST(Config, FinishNamesAnUnknownKeyWithTheKnownOnesAndTheNearest) {
  Config layer = model().tables("layer")[1];
  layer.call("[[layer]] conv2");
  layer.string("name");
  layer.integer("kernel", 1);
  layer.integer("out", 1);
  EXPECT_EQ(message_of([&] { layer.finish("conv"); }),
            "net.toml:17: [[layer]] conv2: no key 'kernal' (keys of conv: kernel, name, out); "
            "did you mean 'kernel'?");
}

TEST(Config, FinishSuggestsNothingWhereNothingIsNear) {
  Config config = Config::text("zzz = 1", "x.toml");
  config.integer("name", 1);
  EXPECT_EQ(message_of([&] { config.finish(); }), "x.toml:1: no key 'zzz' (keys: name)");
}

TEST(Config, FinishIsContentWhenEveryKeyWasAskedFor) {
  Config layer = model().tables("layer")[0];
  layer.string("name");
  layer.integer("kernel");
  EXPECT_NO_THROW(layer.finish("conv"));
}

TEST(Config, AKeyThatMayBeGivenIsKnownWhetherItIsThereOrNot) {
  Config there = Config::text("rate = 1"), missing = Config::text("rat = 1");
  EXPECT_TRUE(there.given("rate"));
  EXPECT_NO_THROW(there.finish());
  EXPECT_FALSE(missing.given("rate"));
  EXPECT_THAT(message_of([&] { missing.finish(); }), HasSubstr("did you mean 'rate'?"));
}

TEST(Config, ACopyKeepsItsOwnListOfTheKeysAskedFor) {
  Config one = Config::text("a = 1");
  Config two = one;
  one.integer("a");
  EXPECT_NO_THROW(one.finish());
  EXPECT_THROW(two.finish(), Error);
}

TEST(Config, AWordMustBeOneOfTheList) {
  Config config = Config::text("type = 'gausian'\nround = 'up'\nodd = 'xyzxyz'", "x.toml");
  EXPECT_EQ(config.word("round", {"up", "down"}), "up");
  EXPECT_EQ(message_of([&] {
              config.word("type", {"gaussian", "constant"});
            }),
            "x.toml:1: 'type' is 'gausian', wanted one of constant, gaussian; did you mean 'gaussian'?");
  EXPECT_THAT(message_of([&] {
                config.word("odd", "up", {"up", "down"});
              }),
              AllOf(HasSubstr("odd"), Not(HasSubstr("did you mean"))));
}

TEST(Config, ASyntaxErrorNamesFileAndLine) {
  EXPECT_THAT(message_of([] { Config::text("a = 1\nb = = 2", "bad.toml"); }), StartsWith("bad.toml:2: "));
}

TEST(Config, AKeyOfEndlesslyManyWordsIsAnErrorThatNamesFileAndLine) {
  const auto words = [](int count) {
    std::string key = "a";
    for (int i = 1; i < count; ++i) key += i % 2 ? ".\"a\"" : " . a";
    return key;
  };
  const auto error = [](const std::string& text) { return message_of([&] { Config::text(text, "net.toml"); }); };
  const std::string endless = words(1'000'000);
  for (const std::string& text :
       {endless + " = 1", "[" + endless + "]", "[[" + endless + "]]", "x = {" + endless + "=1}"})
    EXPECT_THAT(error("b = 1\n" + text), StartsWith("net.toml:2: a key of more than 17 words"));
  EXPECT_THAT(message_of([&] { model().set(endless, "1"); }), HasSubstr("a key of more than 17 words"));
  std::string fine = words(17) + " = 1 # " + std::string(80, '.') + "\nmeans = [0.5";
  for (int i = 0; i < 100; ++i) fine += ", 0.5";
  EXPECT_NO_THROW(Config::text(fine + "]", "net.toml"));
}

TEST(Config, SentencesInStringsAndCommentsAreNoKeysOfManyWords) {
  const std::string sentences = "a.b c.d e.f g.h i.j k.l m.n o.p q.r s.t u.v w.x y.z a.b c.d e.f g.h i.j";
  for (const std::string quotes : {"\"", "'", "\"\"\"", "'''"})
    EXPECT_NO_THROW(Config::text(concat("a = ", quotes, sentences, quotes, " # it's ", sentences), "net.toml"));
}

TEST(Config, QuotesHideNoKeyOfEndlesslyManyWords) {
  const auto endless = [](const std::string& word) {
    std::string key = word;
    for (int i = 0; i < 200'000; ++i) key += "." + word;
    return key;
  };
  for (const std::string word : {R"(',')", R"("=")", R"('{')", R"("\"\n")"})
    for (const std::string before : {R"()", R"(a = "", )", R"(a = "'''\"", )", R"(a = '\', )", R"(a = '''it's''', )",
                                     "a = '''\n\" ''''', ", "a = \"\"\"\n'\"\"\"\"\", "})
      EXPECT_THAT(message_of([&] { Config::text(concat("x = {", before, endless(word), " = 1}"), "net.toml"); }),
                  HasSubstr(": a key of more than 17 words"))
          << before << word;
}

TEST(Config, TheDeepestTablesCanBePrintedAndReadBack) {
  std::string inner = "1";
  for (int i = 0; i < 250; ++i) inner = "{a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a = " + inner + "}";
  const std::string text = Config::text("x = " + inner, "net.toml").to_toml();
  EXPECT_GT(text.size(), inner.size() / 2);
}

TEST(Config, AFileThatIsNotThereIsAnError) {
  const TempFolder folder;
  EXPECT_EQ(message_of([&] { Config::file(folder.file("none.toml")); }), "no config file " + folder.file("none.toml"));
  EXPECT_THROW(Config::file(folder.path()), Error);  // a folder
}

TEST(Config, ReadsAFileAndNamesItInMessages) {
  const TempFolder folder;
  write_bytes(folder.file("x.toml"), "\n\nsteps = 3\n");
  Config config = Config::file(folder.file("x.toml"));
  EXPECT_EQ(config.integer("steps"), 3);
  EXPECT_THAT(message_of([&] { config.string("steps"); }), StartsWith(folder.file("x.toml") + ":3: "));
}

TEST(Config, SetReplacesAndAddsValuesOfEveryType) {
  Config config = model();
  config.set("data.batch", "32");
  config.set("schedule.warmup.epochs", "1.5");
  config.set("name", "other");
  config.set("data.sizes", "[4]");
  EXPECT_EQ(config.string("name"), "other");  // no TOML: a string
  Config data = config.table("data");
  EXPECT_EQ(data.integer("batch"), 32);
  EXPECT_THAT(data.integers("sizes"), ElementsAre(4));
  EXPECT_EQ(config.table("schedule").table("warmup").number("epochs"), 1.5);
}

// TOML requires a digit on both sides of the point.
TEST(Config, NumbersCanBeSetAsPeopleWriteThem) {
  Config config = model();
  for (const auto& [text, value] :
       {std::pair(".5", 0.5), {"-.25", -0.25}, {"2.", 2.0}, {"+3.e1", 30.0}, {"1e-2", 0.01}}) {
    config.set("data.rate", text);
    EXPECT_EQ(config.table("data").number("rate"), value) << text;
  }
  EXPECT_EQ(message_of([&] { config.set("data.rate", "1e400"); }), "--set data.rate=1e400: no number can hold 1e400");
  for (const char* text :
       {"9223372036854775808", "-99999999999999999999", "+99999999999999999999", "0x1ffffffffffffffff"})
    EXPECT_EQ(message_of([&] { config.set("data.batch", text); }),
              concat("--set data.batch=", text, ": no integer of 64 bits can hold ", text));
  config.set("data.batch", "9223372036854775807");
  for (const char* text : {"1.2.3", ".", "-", "1.0a", "v.5", "007", "0xg"}) {
    config.set("name", text);
    EXPECT_EQ(config.string("name"), text);
  }
}

TEST(Config, SettingAKeyToNothingTakesItOut) {
  Config config = model();
  config.set("data.batch", "");
  EXPECT_FALSE(config.table("data").has("batch"));
  EXPECT_TRUE(config.table("data").has("rate"));
  config.set("data.batch", "8");
  EXPECT_EQ(config.table("data").integer("batch"), 8);
  config.set("name", "''");
  EXPECT_EQ(config.string("name"), "");
  EXPECT_THAT(message_of([&] { config.set("data.bacth", ""); }),
              AllOf(StartsWith("--set data.bacth=: "), HasSubstr("no such key")));
}

TEST(Config, ATextThatIsNoUtf8CannotBeSet) {
  Config config = model();
  EXPECT_THAT(message_of([&] { config.set("data.dir", "/data/\xff"); }),
              AllOf(StartsWith("--set data.dir=/data/\xff: "), HasSubstr("no UTF-8")));
  config.set("data.dir", "/data/\xc3\xa9\n\x01");
  EXPECT_EQ(Config::text(config.to_toml()).table("data").string("dir"), "/data/\xc3\xa9\n\x01");
}

TEST(Config, SetKeepsTheLineNumbersOfTheRest) {
  Config config = model();
  config.set("data.batch", "32");
  EXPECT_THAT(message_of([&] { config.table("data").integer("rate"); }), StartsWith("net.toml:6: [data]: 'rate'"));
}

TEST(Config, AValueThatWasSetIsNamedAsOnTheCommandLine) {
  Config config = model();
  config.set("data.batch", "many");
  EXPECT_EQ(message_of([&] { config.table("data").integer("batch"); }),
            "--set data.batch=many: [data]: 'batch' is a string, wanted an integer");
}

TEST(Config, SetDoesNotChangeEarlierCopies) {
  Config config = model();
  Config before = config, data = config.table("data");
  config.set("data.batch", "32");
  EXPECT_EQ(before.table("data").integer("batch"), 64);
  EXPECT_EQ(data.integer("batch"), 64);
}

TEST(Config, SetRefusesAPathThroughAValueAndAnEmptyKey) {
  Config config = model();
  EXPECT_THAT(message_of([&] { config.set("name.inner", "1"); }), HasSubstr("'name' is not a table"));
  EXPECT_THAT(message_of([&] { config.set("", "1"); }), HasSubstr("wanted KEY=VALUE"));
}

TEST(Config, OnlyAWholeDocumentCanBeChanged) {
  Config config = model();
  Config data = config.table("data");
  EXPECT_THROW(data.set("batch", "1"), Error);
  EXPECT_THROW(config.put("model", data), Error);
}

TEST(Config, PutKeepsBothFilesInMessages) {
  Config recipe = Config::text("model = 'net.toml'\nsteps = 'x'", "recipe.toml");
  recipe.put("model", model());
  EXPECT_THAT(message_of([&] { recipe.integer("steps"); }), StartsWith("recipe.toml:2: "));
  Config inner = recipe.table("model");
  EXPECT_EQ(inner.string("name"), "net");
  EXPECT_THAT(message_of([&] { inner.table("data").integer("rate"); }), StartsWith("net.toml:6: "));
  EXPECT_THAT(message_of([&] { inner.tables("layer")[1].finish("conv"); }), StartsWith("net.toml:17: "));
}

TEST(Config, AValueCanBeSetInsideATableThatWasPut) {
  Config recipe = Config::text("steps = 1", "recipe.toml");
  recipe.put("model", model());
  recipe.set("model.classes", "100");
  EXPECT_EQ(recipe.table("model").integer("classes"), 100);
  EXPECT_THAT(message_of([&] { recipe.table("model").table("data").integer("rate"); }), StartsWith("net.toml:6: "));
}

TEST(Config, WritesItselfAsTomlThatReadsBackTheSame) {
  Config config = model();
  config.set("data.batch", "32");
  const std::string toml = config.to_toml();
  Config again = Config::text(toml);
  EXPECT_EQ(again.to_toml(), toml);
  EXPECT_EQ(again.table("data").integer("batch"), 32);
  EXPECT_EQ(again.tables("layer").size(), 2u);
}

TEST(Nearest, KnowsTheWordsOfOtherPrograms) {
  EXPECT_EQ(nearest("lr", {"decay", "learning_rate"}), "learning_rate");
  EXPECT_EQ(nearest("batch-size", {"batch", "batch_per_rank"}), "batch");
  EXPECT_EQ(nearest("weight_decay", {"decay", "momentum"}), "decay");
  EXPECT_EQ(nearest("gpus", {"threads", "workers"}), "workers");
  EXPECT_EQ(nearest("lr", {"stride", "ps"}), "");
  EXPECT_EQ(nearest("learning_rate", {"lr", "type"}), "lr") << "a key that is missing, under another name";
}

TEST(Nearest, ARecipeNamesTheTableOfAKeyThatStandsOutsideOfIt) {
  for (const auto& [word, key] : {std::pair("lr", "optimizer.learning_rate"), std::pair("epochs", "schedule.epochs")}) {
    Config recipe = Config::text(concat(word, " = 3"));
    recipe.given("data"), recipe.given("ps");
    try {
      recipe.finish("a recipe");
      ADD_FAILURE() << word;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(concat("did you mean '", key, "'?")));
    }
  }
}

TEST(Nearest, TakesTheFewestEditsWithinAThirdOfTheWord) {
  EXPECT_EQ(nearest("kernal", {"kernel", "stride", "pad"}), "kernel");
  EXPECT_EQ(nearest("pda", {"pad", "out"}), "pad");
  EXPECT_EQ(nearest("kernel", {"stride", "groups"}), "");
  EXPECT_EQ(nearest("x", {}), "");
  EXPECT_EQ(nearest("learning_rat", {"learning_rate", "learning_rates"}), "learning_rate");
}

TEST(Config, SaysEveryValueByItsDottedKey) {
  const Config config = Config::text(R"(
top = "a"
[data]
batch = 12
augment = { crop = 28, means = [1.5, 2.0] }
[[model.layer]]
name = "conv1"
out = 8
[[model.layer]]
out = 9
[[model.layer]]
name = "conv1"
out = 10
)");
  const std::map<std::string, std::string> wanted{{"top", "'a'"},
                                                  {"data.batch", "12"},
                                                  {"data.augment.crop", "28"},
                                                  {"data.augment.means", "[ 1.5, 2.0 ]"},
                                                  {"model.layer.conv1.name", "'conv1'"},
                                                  {"model.layer.conv1.out", "8"},
                                                  {"model.layer.1.out", "9"},
                                                  {"model.layer.conv1#2.name", "'conv1'"},
                                                  {"model.layer.conv1#2.out", "10"}};
  EXPECT_EQ(values_of(config), wanted);
}

}  // namespace
}  // namespace owt::config_test
