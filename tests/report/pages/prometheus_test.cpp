#include "src/report/pages/prometheus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <set>
#include <sstream>

namespace owt::prometheus_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunRecord a_run() {
  RunRecord run;
  run.name = "a \"b\" \\";
  run.metrics.steps = {{20}, {1.5}, {0.01}, {0.75}, {0.5}, {0.125}, {1000}, {NAN}, {NAN}};
  run.metrics.evaluations.push_back({10, 1, 0, "test", 0.5, 0.8, 0.9});
  run.metrics.evaluations.push_back({20, 2, 0, "test", 0.25, 0.875, 1});
  return run;
}

TEST(Prometheus, TellsWhereTheRunIs) {
  const RunRecord run = a_run();
  const std::string text = prometheus_text({&run, 1});
  EXPECT_THAT(text,
              HasSubstr("# HELP owt_step Updates done.\n# TYPE owt_step gauge\nowt_step{run=\"a \\\"b\\\" \\\\\"} 20"));
  EXPECT_THAT(text, HasSubstr("owt_training_seconds{run=\"a \\\"b\\\" \\\\\"} 36"));
  EXPECT_THAT(text, HasSubstr("owt_evaluation_top1{run=\"a \\\"b\\\" \\\\\",split=\"test\"} 0.875\n"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
  EXPECT_THAT(text, Not(HasSubstr("data_wait")));
}

TEST(Prometheus, TellsTheNewestNumberOfWorkers) {
  RunRecord run = a_run();
  EXPECT_THAT(prometheus_text({&run, 1}), Not(HasSubstr("owt_workers")));
  run.metrics.worlds = {{0, 0, 0, 4, true}, {15, 1.5, 0, 3, false, "lost", 7}};
  EXPECT_THAT(prometheus_text({&run, 1}), HasSubstr("owt_workers{run=\"a \\\"b\\\" \\\\\"} 3\n"));
}

TEST(Prometheus, EveryLineIsACommentOrASample) {
  const std::regex wanted(R"re((# (HELP|TYPE) owt_\w+ .+|owt_\w+\{run="(\\.|[^"\\])*"(,split="\w+")?\} [-+.e0-9]+))re");
  const RunRecord run = a_run();
  std::istringstream lines(prometheus_text({&run, 1}));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_TRUE(std::regex_match(line, wanted)) << line;
  EXPECT_GT(count, 20);
}

TEST(Prometheus, ANameOfAnyBytesIsALabel) {
  RunRecord run = a_run();
  run.name = "a\nb\xff\xc3\xa9\x1b";
  EXPECT_THAT(prometheus_text({&run, 1}), HasSubstr("owt_step{run=\"a\\\\x0ab\\\\xff\xc3\xa9\\\\x1b\"} 20\n"));
}

// One block of each name, its HELP and TYPE before it.
TEST(Prometheus, EveryNameHasOneBlock) {
  RunRecord run = a_run();
  run.metrics.evaluations.push_back({20, 2, 0, "val", 0.25, 0.875, 1});
  std::istringstream lines(prometheus_text({&run, 1}));
  std::set<std::string> begun;
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string mark, kind;
    if (line.starts_with("# HELP ")) {
      words >> mark >> kind >> name;
      EXPECT_TRUE(begun.insert(name).second) << line;
      ASSERT_TRUE(std::getline(lines, line));
      EXPECT_EQ(line, "# TYPE " + name + " gauge");
    } else {
      EXPECT_TRUE(line.starts_with(name + "{")) << line;
    }
  }
  EXPECT_TRUE(begun.contains("owt_evaluation_top5"));
}

TEST(Prometheus, OfARunThatHasNotBegunSaysThatNobodyIsAtIt) {
  RunRecord run;
  run.name = "a";
  EXPECT_EQ(prometheus_text({&run, 1}),
            "# HELP owt_running 1: a process of this machine is at it.\n# TYPE owt_running gauge\n"
            "owt_running{run=\"a\"} 0\n");
}

// A name may have one HELP and one TYPE line, before all of its samples.
TEST(Prometheus, SamplesOfOneNameStandTogether) {
  std::vector<RunRecord> runs{a_run(), a_run()};
  runs[1].name = "c";
  EXPECT_THAT(
      prometheus_text(runs),
      HasSubstr("# TYPE owt_loss gauge\nowt_loss{run=\"a \\\"b\\\" \\\\\"} 0.75\nowt_loss{run=\"c\"} 0.75\n# HELP"));
}

}  // namespace
}  // namespace owt::prometheus_test
