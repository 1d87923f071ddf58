#include "src/train/pages/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "src/core/check.h"
#include "src/core/files.h"
#include "src/train/metrics.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

const Overrides kLogged{{"run.log_every", "1"}, {"schedule.max_steps", "7"}};

class Pages : public ::testing::Test, protected WholeRuns {
 protected:
  std::string page(const std::vector<std::string>& names, const PageOptions& options = {}) const {
    std::vector<RunRecord> runs;
    for (const std::string& name : names) runs.push_back(read_run(path(name)));
    tell_apart(runs);
    return page_of(runs, options);
  }
  static std::string part(const std::string& page, const std::string& id) {
    const size_t begin = page.find("<section id=\"" + id + "\"");
    return begin == std::string::npos ? "" : page.substr(begin, page.find("</section>", begin) - begin);
  }
};

// The end of the tag that begins at `at`.
size_t end_of_tag(const std::string& page, size_t at) {
  for (bool quoted = false; at < page.size(); ++at) {
    if (page[at] == '"') quoted = !quoted;
    if (page[at] == '>' && !quoted) break;
  }
  return at;
}

// What each tag opens is closed, in order.
void expect_well_formed(const std::string& page) {
  std::vector<std::string> open;
  const std::set<std::string> lonely{"meta", "link", "img", "br", "!DOCTYPE"};
  for (size_t at = 0; (at = page.find('<', at)) != std::string::npos;) {
    const size_t end = end_of_tag(page, at);
    const std::string tag = page.substr(at + 1, end - at - 1), name = tag.substr(0, tag.find_first_of(" \n"));
    at = end;
    if (name == "style" || name == "script") at = page.find("</" + name, at);
    if (name.starts_with('/')) {
      ASSERT_FALSE(open.empty()) << name;
      ASSERT_EQ("/" + open.back(), name);
      open.pop_back();
    } else if (!lonely.contains(name) && !tag.ends_with('/')) {
      open.push_back(name);
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST_F(Pages, ShowARunThatHasBeenTrained) {
  run("a", merged(kLogged, {{"parallel.workers", "2"}, {"parallel.strategy", "owt-c"}, {"run.eval_every_steps", "3"}}));
  const std::string html = page({"a"});
  expect_well_formed(html);
  EXPECT_THAT(html, HasSubstr("<title>a</title>"));
  EXPECT_THAT(part(html, "overview"), HasSubstr("<td class=\"n\">7</td>"));
  for (const char* title : {"Loss over epochs", "Loss over time", "Top-1 accuracy over epochs", "Speed over time",
                            "Learning rate over epochs", "Waiting for data over epochs"})
    EXPECT_THAT(part(html, "curves"), HasSubstr(title));
  EXPECT_THAT(part(html, "settings"), HasSubstr("<td>owt-c</td>"));
  EXPECT_THAT(part(html, "sizes"), AllOf(HasSubstr("|dw| / |w| over epochs"), HasSubstr("fc1.weight")));
  EXPECT_THAT(part(html, "filters"), HasSubstr("data:image/png;base64,"));
  EXPECT_THAT(part(html, "times"), AllOf(HasSubstr("Time of each layer"), HasSubstr("gradients")));
  EXPECT_THAT(part(html, "plan"), AllOf(HasSubstr("boundary"), HasSubstr("class=\"outputs\" style=\"left:50.0%")));
  EXPECT_THAT(part(html, "machines"), AllOf(HasSubstr("processor"), HasSubstr("seed")));
  EXPECT_THAT(part(html, "answers"), HasSubstr("owt report RUN --data DIR"));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, AllOf(Not(HasSubstr("http:")), Not(HasSubstr("https:")), HasSubstr("default-src 'none'")));
}

TEST_F(Pages, HoldRunsOfDifferentLengthsAgainstEachOther) {
  run("long", kLogged);
  run("short", {{"run.log_every", "1"}, {"schedule.max_steps", "2"}, {"optimizer.momentum", "0.5"}});
  const std::string html = page({"long", "short"});
  expect_well_formed(html);
  EXPECT_THAT(part(html, "curves"),
              AllOf(HasSubstr("long, training"), HasSubstr("short, test"), HasSubstr("class=\"line s1")));
  const std::string settings = part(html, "settings").substr(0, part(html, "settings").find("<details"));
  EXPECT_THAT(settings,
              AllOf(HasSubstr("optimizer.momentum"), HasSubstr("schedule.max_steps"), Not(HasSubstr("data.batch"))));
}

TEST_F(Pages, SayWhatIsMissingAndHowToGetIt) {
  fs::create_directory(path("new"));
  write_bytes(path("new") + "/config.toml", "[data]\nbatch = 3\n");
  const std::string html = page({"new"});
  expect_well_formed(html);
  EXPECT_THAT(part(html, "curves"), HasSubstr("No steps are in metrics.jsonl yet"));
  EXPECT_THAT(part(html, "sizes"), HasSubstr("at each evaluation"));
  EXPECT_THAT(part(html, "filters"), HasSubstr("No checkpoint yet"));
  EXPECT_THAT(part(html, "times"), HasSubstr("No timing.csv: new"));
  EXPECT_THAT(part(html, "plan"), HasSubstr("there is no plan to draw"));
  EXPECT_THAT(part(html, "machines"), HasSubstr("does not say where it ran"));
  EXPECT_THAT(part(html, "inputs"), HasSubstr("owt report RUN --data DIR"));
}

TEST_F(Pages, NameFilesThatCannotBeReadAndShowTheRest) {
  run("a", kLogged);
  write_bytes(path("a") + "/config.toml", "[data\n");
  write_bytes(*newest_checkpoint(path("a")) + "/state.json", "{}");
  std::string metrics = read_file(path("a") + "/metrics.jsonl");
  write_bytes(path("a") + "/metrics.jsonl", "damaged\n" + metrics);
  const std::string html = page({"a"});
  expect_well_formed(html);
  EXPECT_THAT(part(html, "overview"),
              AllOf(HasSubstr("config.toml"), HasSubstr("state.json is damaged"), HasSubstr("1 line is no record")));
  EXPECT_THAT(part(html, "curves"), HasSubstr("Loss over epochs"));
}

TEST_F(Pages, ShowTheWeightsOfALayerByName) {
  run("a", kLogged);
  EXPECT_THAT(part(page({"a"}, {.layer = "fc1"}), "filters"), HasSubstr("fc1.weight of a"));
  EXPECT_THAT(part(page({"a"}, {.layer = "fc"}), "filters"),
              AllOf(HasSubstr("no layer 'fc' with weights"), HasSubstr("conv1")));
}

TEST_F(Pages, OfFoldersThatHoldNoRunAreRefused) {
  EXPECT_THAT(message_of([&] { read_run(path("")); }), HasSubstr("is no run folder"));
}

TEST_F(Pages, RunsOfOneNameAreToldApartByTheirFolders) {
  for (const std::string folder : {"x/run", "y/run", "y/other"}) {
    fs::create_directories(path(folder));
    write_bytes(path(folder) + "/metrics.jsonl", "");
  }
  std::vector<RunRecord> runs{read_run(path("x/run")), read_run(path("y/run") + "/")};
  tell_apart(runs);
  EXPECT_EQ(runs[0].name, "x/run");
  EXPECT_EQ(runs[1].name, "y/run");
  runs = {read_run(path("x/run")), read_run(path("y/other"))};
  tell_apart(runs);
  EXPECT_EQ(runs[0].name, "run");
  EXPECT_EQ(runs[1].name, "other");
}

TEST_F(Pages, HoldTheRanksAgainstEachOther) {
  std::string times = "kind,name,forward_ms,backward_ms,update_ms,ms,transfer_ms,bytes_sent,rank\n";
  for (int rank = 0; rank < 3; ++rank) {
    times += concat("layer,conv1,", rank + 1, ",2,0,", rank + 3, ",0,0,", rank, "\n");
    times += concat("transfer,gradients,0,0,0,", 2 - rank, ",2,1000,", rank, "\nstep,step,0,0,0,5,0,0,", rank, "\n");
  }
  RunRecord run{.name = "a", .folder = "a"};
  run.times = csv_table_from(times);
  const std::string html = times_section({&run, 1});
  EXPECT_THAT(html, AllOf(HasSubstr("a, rank 0"), HasSubstr("a, rank 2"), HasSubstr("All ranks of a")));
  const std::string cells = "<td class=\"n\">";
  const auto row = [&](const std::string& name, const std::string& first, const std::string& median,
                       const std::string& slowest, const std::string& rank) {
    return "<td>" + name + "</td>" + cells + first + "</td>" + cells + median + "</td>" + cells + slowest + "</td>" +
           cells + rank + "</td>";
  };
  EXPECT_THAT(html,
              AllOf(HasSubstr(row("conv1", "3", "4", "5", "2")), HasSubstr(row("gradients", "2", "1", "2", "0"))));
  EXPECT_THAT(html, HasSubstr("conv1</span>"));
}

TEST_F(Pages, ShowWhatIsTakenForWhat) {
  class Two : public Dataset {
   public:
    int64_t size() const override { return 3; }
    Shape image() const override { return {2, 2, 3}; }
    int classes() const override { return 2; }
    int label(int64_t index) const override { return static_cast<int>(index % 2); }
    std::vector<std::string> class_names() const override { return {"cat", "<dog>"}; }
    uint64_t checksum() const override { return 0; }
    void read(int64_t index, const View&, uint8_t* pixels) const override {
      std::fill_n(pixels, 12, static_cast<uint8_t>(index * 40));
    }
  };
  Answers answers;
  answers.images = std::make_shared<Two>();
  answers.split = "test";
  answers.predictions = csv_table_from(
      "index,name,label,label_name,top1,top1_name,top1_probability,top2,top2_name,top2_probability,label_probability\n"
      "0,,0,cat,0,cat,0.9,1,<dog>,0.1,0.9\n"
      "1,,1,<dog>,0,cat,0.75,1,<dog>,0.25,0.25\n"
      "2,,0,cat,1,<dog>,0.625,0,cat,0.375,0.375\n");
  const std::string html = answers_section(&answers);
  EXPECT_THAT(html, HasSubstr("1 of 3 images are taken for what they are."));
  EXPECT_THAT(html, HasSubstr("<th>&lt;dog&gt;</th><td class=\"n none\" style=\"--share:0%\">0</td>"
                              "<td class=\"n wrong\" style=\"--share:65%\">1</td>"));
  const size_t confident = html.find("Wrong with the most confidence");
  EXPECT_LT(html.find("image 1: &lt;dog&gt;, taken for cat (75.0 %)", confident), html.find("image 2: cat", confident));
  const size_t worst = html.find("Worst: ");
  EXPECT_LT(html.find("image 1:", worst), html.find("image 2:", worst));
}

}  // namespace
}  // namespace owt
