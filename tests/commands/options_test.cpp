#include "src/commands/options.h"
#include "src/system/log_level.h"
#include "tests/support/message_of.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace owt::options_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Options train_options() {
  Options options("owt train", "Trains a network.");
  options.positional("CONFIG", "the recipe, a TOML file");
  options.option("workers", "K", "1", "ranks in this process");
  options.option("rate", "R", "0.5", "some number");
  options.option("out", "DIR", "run directory");
  options.repeated("set", "KEY=VALUE", "sets a key of the config");
  options.flag("timing", "print the table");
  return options;
}

Options parsed(const std::vector<std::string>& arguments) {
  Options options = train_options();
  EXPECT_TRUE(options.parse(arguments));
  return options;
}

// The UsageError's message for these arguments, after `use` of the options; empty: no error.
template <class Use>
std::string complaint(const std::vector<std::string>& arguments, const Use& use) {
  Options options = train_options();
  return message_of<UsageError>([&] {
    options.parse(arguments);
    use(options);
  });
}

std::string complaint(const std::vector<std::string>& arguments) {
  return complaint(arguments, [](const Options&) {});
}

TEST(Options, ReadValuesInBothSpellings) {
  const Options options = parsed({"--workers", "4", "a.toml", "--out=run", "--timing", "--rate", "-0.25"});

  EXPECT_EQ(options.string("CONFIG"), "a.toml");
  EXPECT_EQ(options.integer("workers"), 4);
  EXPECT_EQ(options.string("out"), "run");
  EXPECT_EQ(options.number("rate"), -0.25);
  EXPECT_TRUE(options.boolean("timing"));
}

TEST(Options, FallBackToDefaultsAndTellThemFromGivenOnes) {
  const Options options = parsed({"a.toml"});

  EXPECT_EQ(options.integer("workers"), 1);
  EXPECT_FALSE(options.given("workers"));
  EXPECT_TRUE(options.has("workers"));
  EXPECT_FALSE(options.has("out"));
  EXPECT_FALSE(options.boolean("timing"));
  EXPECT_THAT(options.list("set"), IsEmpty());
  EXPECT_TRUE(parsed({"a.toml", "--workers", "1"}).given("workers"));
}

TEST(Options, KeepRepeatedOptionsInTheirOrder) {
  EXPECT_THAT(parsed({"--set", "b=2", "a.toml", "--set", "a=1 2"}).list("set"), ElementsAre("b=2", "a=1 2"));
}

TEST(Options, TakeNegativeNumbersAndDashesAsValues) {
  EXPECT_EQ(parsed({"a.toml", "--workers", "-3"}).integer("workers"), -3);
  EXPECT_EQ(parsed({"a.toml", "--out=--odd"}).string("out"), "--odd");
  EXPECT_EQ(parsed({"--", "--odd.toml"}).string("CONFIG"), "--odd.toml");
}

TEST(Options, SuggestTheNearestOptionForAnUnknownOne) {
  EXPECT_THAT(complaint({"a.toml", "--worker", "2"}),
              AllOf(HasSubstr("no option '--worker'"), HasSubstr("did you mean '--workers'?"),
                    HasSubstr("'owt train --help'")));
  EXPECT_THAT(complaint({"a.toml", "--frobnicate"}), Not(HasSubstr("did you mean")));
}

TEST(Options, NameTheKeyForWhatOtherProgramsHaveAsAnOption) {
  Options options("owt train", "Trains.");
  options.repeated("set", "KEY=VALUE", "change a key");
  options.option("workers", "K", "ranks");
  const auto said = [&](const std::string& option) { return message_of([&] { options.parse({option, "1"}); }); };
  EXPECT_THAT(said("--lr"), HasSubstr("--set optimizer.learning_rate=VALUE"));
  EXPECT_THAT(said("--batch-size"), HasSubstr("--set data.batch=VALUE"));
  EXPECT_THAT(said("-j"), HasSubstr("--set data.loader_threads=VALUE"));
  EXPECT_THAT(said("--gpus"), HasSubstr("did you mean '--workers'?"));
}

TEST(Options, RejectWrongCommandLines) {
  EXPECT_THAT(complaint({}), HasSubstr("missing CONFIG: the recipe"));
  EXPECT_THAT(complaint({"a.toml", "b.toml"}), HasSubstr("unexpected argument 'b.toml'"));
  EXPECT_THAT(complaint({"a.toml", "--out"}), HasSubstr("--out"));
  EXPECT_THAT(complaint({"a.toml", "--out", "--timing"}), HasSubstr("--out has no value"));
  EXPECT_THAT(complaint({"a.toml", "--timing=yes"}), HasSubstr("--timing"));
  EXPECT_THAT(complaint({"a.toml", "--out", "x", "--out", "y"}), HasSubstr("--out is given 2 times"));
}

TEST(Options, SayWhichNumberWasWanted) {
  const auto workers = [](const Options& options) { options.integer("workers", {.low = 1}); };
  const auto rate = [](const Options& options) { options.number("rate", {.low = 0, .high = 1}); };

  EXPECT_THAT(complaint({"a", "--workers", "two"}, workers),
              HasSubstr("--workers is 'two', wanted an integer of at least 1"));
  EXPECT_THAT(complaint({"a", "--workers", "0"}, workers), HasSubstr("wanted an integer of at least 1"));
  EXPECT_THAT(complaint({"a", "--workers", "2.5"}, workers), HasSubstr("'2.5'"));
  EXPECT_THAT(complaint({"a", "--workers", "99999999999999999999"}, workers), HasSubstr("wanted an integer"));
  EXPECT_THAT(complaint({"a", "--rate", "1.5"}, rate), HasSubstr("wanted a number from 0 to 1"));
  EXPECT_THAT(complaint({"a", "--rate", "nan"}, rate), HasSubstr("wanted a number from 0 to 1"));
  EXPECT_EQ(complaint({"a", "--rate", "1"}, rate), "");
}

TEST(Options, StopAtHelpWithoutCheckingTheRest) {
  EXPECT_FALSE(train_options().parse({"--help"}));
  EXPECT_FALSE(train_options().parse({"a", "b", "c", "-h"}));
}

TEST(Options, ListEveryOptionOnceWithItsDefaultInTheHelp) {
  const std::string help = train_options().help();

  EXPECT_EQ(help,
            "Usage: owt train CONFIG [options]\n"
            "\n"
            "Trains a network.\n"
            "\n"
            "Arguments:\n"
            "  CONFIG           the recipe, a TOML file\n"
            "\n"
            "Options:\n"
            "  --workers K      ranks in this process (default: 1)\n"
            "  --rate R         some number (default: 0.5)\n"
            "  --out DIR        run directory\n"
            "  --set KEY=VALUE  sets a key of the config (may be repeated)\n"
            "  --timing         print the table\n"
            "  -q, --quiet      print only results, warnings and errors\n"
            "  -v, --verbose    also print the details in the log file of a run\n"
            "  -h, --help       print this text\n");
}

TEST(Options, NameTheOptionThatSetsTheKeyOfAnotherProgramsWord) {
  Options options = train_options();
  options.key_option("lr", "RATE", "optimizer.learning_rate", "learning rate");

  EXPECT_THAT(options.help(), HasSubstr("learning rate (optimizer.learning_rate)\n"));
  EXPECT_TRUE(options.sets_key("lr", "optimizer.learning_rate"));
  EXPECT_FALSE(options.sets_key("rate", "optimizer.learning_rate"));
  for (const char* word : {"--learning-rate", "--lr0", "--base_lr"}) {
    try {
      options.parse({"a.toml", word, "1"});
      ADD_FAILURE() << word;
    } catch (const UsageError& e) {
      EXPECT_THAT(e.what(), HasSubstr("did you mean '--lr'?")) << word;
    }
  }
}

TEST(Options, SayHowMuchOfTheLogIsShown) {
  Options options = train_options();
  options.parse({"a", "-q"});
  EXPECT_EQ(shown_log(), LogLevel::kQuiet);
  options.parse({"a", "--verbose"});
  EXPECT_EQ(shown_log(), LogLevel::kVerbose);
  EXPECT_THROW(options.parse({"a", "-q", "-v"}), UsageError);
  options.parse({"a"});
  EXPECT_EQ(shown_log(), LogLevel::kNormal);
}

TEST(Options, AreListedForCompletion) {
  Options options = train_options();
  EXPECT_FALSE(options.parse({Options::kList}));
  EXPECT_THAT(options.help(), HasSubstr("CONFIG\t\tthe recipe, a TOML file\n"));
  EXPECT_THAT(options.help(), HasSubstr("--workers\tK\tranks in this process\n"));
}

TEST(Options, BreakLongHelpLinesBetweenWords) {
  Options options("owt x", "Does x.");
  std::string words;
  for (int i = 0; i < 30; ++i) words += "word ";
  options.flag("flag", words);

  std::istringstream lines(options.help());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_THAT(options.help(), HasSubstr("word\n                 word"));
}

TEST(Options, TakeOptionalArgumentsAndLists) {
  Options options("owt prepare", "Prepares data.");
  options.positional("KIND", "what");
  options.optional_positional("DIR", "where");

  options.parse({"cifar"});
  EXPECT_FALSE(options.has("DIR"));
  options.parse({"cifar", "d"});
  EXPECT_EQ(options.string("DIR"), "d");
  EXPECT_THROW(options.parse({"cifar", "d", "e"}), UsageError);

  Options images("owt predict", "Predicts.");
  images.positional_list("IMAGE", "images");
  images.parse({"a.png", "b.png"});
  EXPECT_THAT(images.list("IMAGE"), ElementsAre("a.png", "b.png"));
  EXPECT_THAT(images.help(), HasSubstr("Usage: owt predict IMAGE... [options]"));
  Options started("owt launch", "");
  started.command_line("COMMAND", "");
  EXPECT_THAT(started.help(), HasSubstr("Usage: owt launch [options] COMMAND..."));
  EXPECT_TRUE(started.parse({"--", "owt", "train"}));
  EXPECT_THAT(started.list("COMMAND"), ElementsAre("owt", "train"));
  EXPECT_THROW(images.parse({}), UsageError);
}

TEST(Options, AnOptionalListMayBeEmpty) {
  Options options("owt extract", "Writes features.");
  options.positional("CONFIG", "the recipe");
  options.optional_list("IMAGE", "photos");
  ASSERT_TRUE(options.parse({"a.toml"}));
  EXPECT_THAT(options.list("IMAGE"), IsEmpty());
  ASSERT_TRUE(options.parse({"a.toml", "x.jpg", "y.jpg"}));
  EXPECT_THAT(options.list("IMAGE"), ElementsAre("x.jpg", "y.jpg"));
  EXPECT_THAT(options.help(), HasSubstr("CONFIG [IMAGE...]"));
  EXPECT_TRUE(options.declares("IMAGE"));
  EXPECT_FALSE(options.declares("workers"));
}

}  // namespace
}  // namespace owt::options_test
