#include "src/report/pages/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>

#include "src/report/pages/drawn_step.h"
#include "src/report/pages/run_summary.h"
#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "src/train/metrics.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt::page_test {
namespace {

namespace fs = std::filesystem;
using ::testing::_;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

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
  const std::set<std::string> lonely{"meta", "link", "img", "input", "br", "!DOCTYPE"};
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
  for (const char* cell :
       {"\"steps\">7</td>", "\"state\">finished</td>", "\"strategy\">owt-c</td>", "\"workers\">2</td>"})
    EXPECT_THAT(part(html, "overview"), HasSubstr(cell));
  for (const char* title : {"Loss over epochs", "Loss over time", "Top-1 accuracy over epochs", "Speed over time",
                            "Learning rate over epochs", "Waiting for data over epochs"})
    EXPECT_THAT(part(html, "curves"), HasSubstr(title));
  EXPECT_THAT(part(html, "settings"), HasSubstr("<td>owt-c</td>"));
  EXPECT_THAT(part(html, "sizes"), AllOf(HasSubstr("|dw| / |w| over epochs"), HasSubstr("fc1.weight")));
  EXPECT_THAT(part(html, "filters"), HasSubstr("data:image/png;base64,"));
  EXPECT_THAT(part(html, "times"),
              AllOf(HasSubstr("Time of each layer"), HasSubstr("gradients"), HasSubstr("<p class=\"bottleneck\">step "),
                    HasSubstr("data:image/svg+xml;base64,")));
  EXPECT_THAT(part(html, "plan"), AllOf(HasSubstr("boundary"), HasSubstr("class=\"outputs\" style=\"left:50.0%")));
  EXPECT_THAT(part(html, "machines"), AllOf(HasSubstr("processor"), HasSubstr("seed")));
  EXPECT_THAT(part(html, "answers"), HasSubstr("owt report RUN --data DIR"));
  EXPECT_EQ(html.find("<script>"), html.rfind("<script>"));
  EXPECT_THAT(html, AllOf(Not(HasSubstr("http:")), Not(HasSubstr("https:")), HasSubstr("default-src 'none'"),
                          HasSubstr("script-src 'sha256-"), Not(HasSubstr("connect-src"))));
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

VerificationRecord verified(const std::string& name) {
  return {.name = name,
          .weights = "runs/a/checkpoints/step-00000007/weights.safetensors",
          .layer = "fc1",
          .features = 8,
          .mirrored = true,
          .images = 50,
          .same_pairs = 300,
          .different_pairs = 700,
          .accuracy = 0.875,
          .deviation = 0.0125,
          .equal_error_rate = 0.0625,
          .area_under_roc = 0.96875,
          .at_far = {{0.01, 0.5}, {0.1, 0.75}},
          .roc = {{0.001, 0.25}, {0.01, 0.5}, {1, 1}}};
}

// Every text of a run that a page shows, as markup.
TEST_F(Pages, AreNotChangedByTextsOfRuns) {
  const std::string bad = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'";
  std::vector<RunRecord> runs(2);
  for (RunRecord& run : runs) {
    run.name = bad + (&run == &runs.front() ? "1" : "2"), run.folder = bad;
    run.settings = {{bad, run.name}};
    run.metrics.steps = {{20}, {1.5}, {0.01}, {0.75}, {0.5}, {0.125}, {1000}, {1}, {1}};
    run.metrics.evaluations = {{20, 1.5, 0.01, bad, 0.5, 0.75, 0.9, 100, true}};
    run.metrics.weights = {{20, 1.5, 0.01, {{bad + ".weight", 1, 0.5}}}};
    run.metrics.starts = {{0, 0, 10, {{bad, bad}, {"started", bad}, {"strategy", bad}}}};
    run.metrics.worlds = {{10, 1, 0.005, 3, false, bad, 2}};
    run.verifications = {verified(bad)};
    run.verifications[0].layer = run.verifications[0].weights = bad;
    run.metrics.bottleneck = bad, run.metrics.end = bad, run.wrong = {bad};
  }
  for (const bool live : {false, true}) {
    const std::string html = page_of(runs, {.live = live});
    expect_well_formed(html);
    EXPECT_THAT(html, AllOf(Not(HasSubstr("<img src=x")), Not(HasSubstr("<script>alert"))));
  }
}

RunRecord elastic_run(const std::string& name) {
  RunRecord run{.name = name, .folder = name};
  run.metrics.starts = {{0, 0, 10, {{"workers", "4"}}}, {30, 3, 10, {{"workers", "2"}}}};
  const std::vector<double> ones(4, 1);
  run.metrics.steps = {{10, 20, 30, 40}, {1, 2, 3, 4}, {1, 2, 3, 4}, {8, 4, 2, 1}, ones, ones, ones, ones, ones};
  run.metrics.worlds = {
      {0, 0, 0, 4, true}, {15, 1.5, 1.5, 3, false, "rank 2 on node3 was lost", 7}, {30, 3, 3, 2, true}};
  return run;
}

TEST_F(Pages, ShowHowTheWorkersChanged) {
  RunRecord run = elastic_run("a");
  const std::string html = page_of({&run, 1});
  expect_well_formed(html);
  const std::string curves = part(html, "curves");
  // The corners of the steps: 4 workers, 3 from step 15 on, 2 from step 30 on.
  EXPECT_THAT(curves, AllOf(HasSubstr("\"steps\":[0,15,15,30,30,40]"), HasSubstr("\"y\":[4,4,3,3,2,2]}"),
                            HasSubstr("Workers over epochs"), HasSubstr("Workers over time")));
  // A mark from the axis to the loss after step 15; the text is its tooltip, with the script and without it.
  EXPECT_THAT(curves,
              AllOf(HasSubstr("\"steps\":[14.25,15,15,15.75]"), HasSubstr("\"y\":[null,4,0,null]}"),
                    HasSubstr("\"kind\":\"3 workers: rank 2 on node3 was lost\""),
                    HasSubstr("<title>a, 3 workers: rank 2 on node3 was lost: 4 at 1.5</title>"),
                    HasSubstr("<input type=\"hidden\" name=\"kind\" value=\"3 workers: rank 2 on node3 was lost\"")));
  // The numbers below a chart leave out marks.
  EXPECT_THAT(curves, Not(HasSubstr("<td>a, 3 workers")));
  for (const char* cell : {">15</td>", ">3</td>", ">rank 2 on node3 was lost</td>", ">7</td>"})
    EXPECT_THAT(curves.substr(curves.find("Workers that left or joined")), HasSubstr(cell));
  EXPECT_THAT(part(html, "overview"), HasSubstr("\"workers\">2</td>"));
  run.metrics.worlds.pop_back();
  EXPECT_THAT(part(page_of({&run, 1}), "overview"), HasSubstr("\"workers\">3</td>"));
  // The axis of such losses does not begin at 0.
  run.metrics.steps.loss = {8, 7, NAN, 6};
  EXPECT_THAT(part(page_of({&run, 1}), "curves"), HasSubstr("\"y\":[null,7,6,null]}"));
}

// Its numbers of workers are facts of its starts, which another section shows.
TEST_F(Pages, OfARunWhoseWorkersDidNotChangeWhileItWentOnAreAsBefore) {
  RunRecord run = elastic_run("a");
  std::erase_if(run.metrics.worlds, [](const WorldLine& line) { return !line.of_start; });
  const std::string html = page_of({&run, 1});
  run.metrics.worlds.clear();
  EXPECT_EQ(html, page_of({&run, 1}));
}

TEST_F(Pages, ShowTheNewestOfManyChangesAndNoRunWithTheColourOfAnother) {
  std::vector<RunRecord> runs{elastic_run("a"), elastic_run("b")};
  for (int64_t step = 1; step <= 100; ++step)
    runs[1].metrics.worlds.push_back({step, 1, 1, 5, false, concat("change ", step), 0});
  const std::string html = part(page_of(runs), "curves");
  EXPECT_THAT(html,
              AllOf(HasSubstr(">change 61</td>"), Not(HasSubstr(">change 60</td>")), HasSubstr(">change 100</td>"),
                    HasSubstr("rank 2 on node3 was lost"), HasSubstr("last 40 changes")));
  EXPECT_THAT(html, Not(HasSubstr("chart many")));
  EXPECT_THAT(html, HasSubstr("\"name\":\"b\",\"kind\":\"5 workers: change 70\",\"color\":1"));
}

TEST_F(Pages, ShowWhatPairsOfImagesGave) {
  std::vector<RunRecord> runs(1);
  runs[0].name = "a";
  runs[0].verifications = {verified("seen"), verified("unseen")};
  const std::string html = part(page_of(runs), "pairs");
  for (const char* cell : {"seen", "300", "700", "50", "87.50 % +- 1.25 %", "50.00 % at 0.01, 75.00 % at 0.1", "6.25 %",
                           "0.96875", "8 values of 'fc1', with mirror image", "step-00000007/weights.safetensors"})
    EXPECT_THAT(html, HasSubstr(format(">{}</td>", cell)));
  // The axis of FARs is logarithmic: 0.01 is a third of the way from 0.001 to 1.
  EXPECT_THAT(html, AllOf(HasSubstr("class=\"line s0\" d=\"M60.0 "), HasSubstr("L180.7 "), HasSubstr("L422.0 "),
                          HasSubstr("class=\"line s1\""), HasSubstr("FAR below 1/n")));
  runs.emplace_back().name = "b";
  EXPECT_THAT(part(page_of(runs), "pairs"), HasSubstr(">a, unseen</td>"));
  EXPECT_THAT(part(page_of(std::span(runs).last(1)), "pairs"), HasSubstr("owt verify RUN PAIRS"));
}

TEST_F(Pages, AreMadeAgainWhenPairsWereCompared) {
  run("a", kLogged);
  RunReader reader(path("a"));
  EXPECT_TRUE(reader.read());
  EXPECT_FALSE(reader.read());
  fs::create_directory(path("a") + "/verification");
  EXPECT_TRUE(reader.read());
  EXPECT_FALSE(reader.read());
  write_bytes(path("a") + "/verification/x.json", "{");
  // The file system's clock may not have advanced.
  fs::last_write_time(path("a") + "/verification", fs::file_time_type::clock::now() + std::chrono::seconds(9));
  EXPECT_TRUE(reader.read());
  EXPECT_THAT(reader.record().wrong, ElementsAre(HasSubstr("x.json is no result of owt verify")));
  EXPECT_THAT(part(page({"a"}), "overview"), HasSubstr("x.json is no result of owt verify"));
}

TEST_F(Pages, FoldUpTheLayersInWhichNetworksDiffer) {
  std::vector<RunRecord> runs(2);
  runs[0].name = "a", runs[1].name = "b";
  runs[1].settings.emplace_back("optimizer.momentum", "0.5");
  for (int i = 0; i < 9; ++i) runs[0].settings.emplace_back(concat("model.layer.conv", i, ".out"), "8");
  const std::string html = settings_section(runs);
  const size_t fold = html.find("9 settings of layers in which they differ");
  EXPECT_LT(html.find("optimizer.momentum"), fold);
  EXPECT_GT(html.find("model.layer.conv0.out"), fold);
  runs[0].settings.pop_back();
  EXPECT_THAT(settings_section(runs), Not(HasSubstr("settings of layers")));
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

TEST_F(Pages, ADoubtIsOnThePageAsLongAsItIsThereAndLoggedOnce) {
  run("a", kLogged);
  write_bytes(path("a") + "/checkpoints/latest", "");
  const std::string log = path("a") + "/metrics.jsonl";
  ::testing::internal::CaptureStderr();
  RunReader reader(path("a"));
  for (int i = 0; i < 3; ++i) {
    write_bytes(log, read_file(log) + "no record\n");
    EXPECT_TRUE(reader.read());
    EXPECT_THAT(reader.record().wrong, Contains(HasSubstr("latest is damaged (it is empty)")));
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("latest is damaged"), said.npos);
  EXPECT_EQ(said.find("latest is damaged"), said.rfind("latest is damaged"));
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

TEST_F(Pages, OfRunsOfWhichNothingCanBeReadAreRefused) {
  fs::create_directory(path("bad"));
  write_bytes(path("bad") + "/config.toml", "[data\n");
  write_bytes(path("bad") + "/metrics.jsonl", "\x01\xff\n{}\n");
  EXPECT_THAT(message_of([&] { read_run(path("bad")); }),
              AllOf(HasSubstr("nothing of the run "), HasSubstr("config.toml")));
}

TEST_F(Pages, RunsOfOneNameAreDistinguishedByTheirFolders) {
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
  EXPECT_THAT(html, AllOf(HasSubstr("a, worker 0"), HasSubstr("a, worker 2"), HasSubstr("All 3 workers of a")));
  const std::string cells = "<td class=\"n\">";
  const auto row = [&](const std::string& name, const std::string& median, const std::string& slowest,
                       const std::string& rank) {
    return "<td>" + name + "</td>" + cells + median + "</td>" + cells + slowest + "</td>" + cells + rank + "</td>";
  };
  EXPECT_THAT(html, AllOf(HasSubstr(row("conv1", "4", "5", "2")), HasSubstr(row("gradients", "1", "2", "0"))));
  // The bar of a layer is the median of each of its parts.
  EXPECT_THAT(html, HasSubstr("title=\"forward: 2 ms\""));
  EXPECT_THAT(html, HasSubstr("title=\"worker 2: 5.000 ms\""));
  EXPECT_THAT(html, HasSubstr("conv1</span>"));
}

// In a pipeline rank 0 has rows of some layers, and other ranks of the rest.
TEST_F(Pages, ShowLayersThatOnlyOtherRanksHave) {
  RunRecord run{.name = "a", .folder = "a"};
  run.times = csv_table_from(
      "kind,name,forward_ms,backward_ms,update_ms,ms,rank\nlayer,conv1,1,2,0,3,0\nlayer,conv1,0,0,0,0,1\nlayer,fc1,3,4,"
      "0,7,1\n");
  const std::string html = times_section({&run, 1});
  EXPECT_THAT(html, AllOf(HasSubstr("conv1</span>"), HasSubstr("fc1</span>")));
  EXPECT_THAT(html, AllOf(HasSubstr("title=\"forward: 1 ms\""), HasSubstr("title=\"forward: 3 ms\"")));
}

TEST_F(Pages, SayWhatStateARunIsIn) {
  RunRecord run{.name = "a", .folder = "a"};
  const auto state = [&] {
    const std::string html = overview_section({&run, 1});
    const size_t begin = html.find("data-head=\"state\">") + 18;
    return html.substr(begin, html.find('<', begin) - begin);
  };
  EXPECT_EQ(state(), "not begun");
  run.metrics.steps = {{20}, {1.5}, {0.01}, {0.75}, {0.5}, {0.125}, {1000}, {NAN}, {NAN}};
  EXPECT_EQ(state(), "no end written");
  run.metrics.steps.loss = {NAN};
  EXPECT_EQ(state(), "diverged");
  run.metrics.end = "stopped";
  EXPECT_EQ(state(), "stopped");
  run.running = true;
  EXPECT_EQ(state(), "running");
}

RunRecord summarized_run() {
  RunRecord run{.name = "a", .folder = "a"};
  run.settings = {{"model.name", "alexnet"}, {"data.format", "cifar10"}, {"schedule.epochs", "4"}};
  run.metrics.starts = {{0, 0, 10, {{"command", "owt train cifar10 --out runs/a"}, {"started", "2026-11-27"}}}};
  run.metrics.steps = {{10, 20}, {1, 2}, {0.1, 0.2}, {0.75, 0.5}, {0.5, 0.5}, {0.1, 0.1}, {9, 9}, {0, 0}, {NAN, NAN}};
  run.metrics.evaluations = {{10, 1, 0.1, "test", 0.5, 0.75, 1, 100}, {20, 2, 0.2, "test", 0.25, 0.625, 1, 100}};
  return run;
}

TEST_F(Pages, BeginWithTheBestFigureAndWhereItComesFrom) {
  const RunRecord run = summarized_run();
  const std::string html = overview_section({&run, 1});
  EXPECT_THAT(html, HasSubstr("<b>75.00 %</b><span>best test top-1<small>step 10</small>"));
  EXPECT_THAT(html, HasSubstr("<b>0.25</b><span>test loss<small>step 20</small>"));
  EXPECT_THAT(html, HasSubstr("Recipe cifar10, model alexnet, data cifar10, "));
  EXPECT_THAT(html, HasSubstr("Started 2026-11-27"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"col\" class=\"n\">test loss</th>"));
}

TEST_F(Pages, NameTheSplitThatWasEvaluated) {
  std::vector<RunRecord> runs(2, summarized_run());
  EXPECT_EQ(split_of(runs), "test");
  runs[1].metrics.evaluations[1].split = "val";
  EXPECT_EQ(split_of(runs), "evaluation");
  runs[1].metrics.evaluations.erase(runs[1].metrics.evaluations.begin());
  EXPECT_EQ(split_of({&runs[1], 1}), "validation");
}

TEST_F(Pages, SayHowLongARunWillTake) {
  RunRecord run = summarized_run();
  EXPECT_EQ(total_steps_of(run), 40);
  EXPECT_EQ(steps_text(run), "20 of 40");
  EXPECT_TRUE(std::isnan(seconds_left_of(run)));  // it has ended
  run.running = true;
  EXPECT_NEAR(seconds_left_of(run), 20 * 36, 1e-9);  // 10 steps take 0.1 h
  EXPECT_THAT(overview_section({&run, 1}), HasSubstr("<b>12:00</b><span>left<small>step 20 of 40</small>"));
  run.settings.emplace_back("schedule.max_steps", "30");
  EXPECT_EQ(total_steps_of(run), 30);
  run.settings.clear();
  EXPECT_EQ(total_steps_of(run), 0);
  EXPECT_EQ(steps_text(run), "20");
}

TEST_F(Pages, ListTheRunsOfAFolderWithLinks) {
  std::vector<RunRecord> runs(3, summarized_run());
  runs[1].name = "x/\"<b>%&'", runs[1].changed = 1;
  runs[2].name = "new", runs[2].running = true;
  const std::string html = list_page_of(runs, "<runs>");
  expect_well_formed(html);
  EXPECT_THAT(html, HasSubstr("<h1>&lt;runs&gt;</h1>"));
  EXPECT_THAT(html, HasSubstr("<a href=\"run/x%2F%22%3Cb%3E%25%26%27/\">x/&quot;&lt;b&gt;%&amp;'</a>"));
  const std::string list = part(html, "overview");
  // Training runs first, then the last changed.
  EXPECT_LT(list.find("run/new/"), list.find("run/x%2F"));
  EXPECT_LT(list.find("run/x%2F"), list.find("run/a/"));
  EXPECT_THAT(list, HasSubstr("<td class=\"n\">62.50 %</td><td class=\"n\">75.00 %</td>"));
  EXPECT_THAT(list, AllOf(HasSubstr("best test top-1</th>"), HasSubstr("12:00"), HasSubstr("20 of 40"),
                          HasSubstr("<time data-at=\"1\"")));
  EXPECT_THAT(part(html, "curves"), HasSubstr("Loss over epochs"));
}

TEST_F(Pages, LeaveOutATopFiveThatIsAlwaysRight) {
  RunRecord run = summarized_run();
  EXPECT_THAT(curves_section({&run, 1}), AllOf(HasSubstr("Top-1 accuracy"), Not(HasSubstr("Top-5 accuracy"))));
  run.metrics.evaluations[0].top5 = 0.99;
  EXPECT_THAT(curves_section({&run, 1}), HasSubstr("Top-5 accuracy"));
}

TEST_F(Pages, PointAtWeightsThatLearnHardlyAtAllOrTooMuchAtATime) {
  RunRecord run{.name = "a", .folder = "a"};
  // The first evaluation has no ratio.
  run.metrics.weights = {
      {1, 1, 0, {{"w1.weight", 1, NAN}, {"w2.weight", 1, NAN}, {"w3.weight", 1, NAN}, {"w1.bias", 1, NAN}}}};
  EXPECT_THAT(sizes_section({&run, 1}), Not(HasSubstr("class=\"warning\"")));
  run.metrics.weights.push_back(
      {2, 2, 0, {{"w1.weight", 2, 0.0002}, {"w2.weight", 2, 0.0001}, {"w3.weight", 2, 0.03}, {"w1.bias", 1, 1}}});
  const std::string html = sizes_section({&run, 1});
  const size_t low = html.find("is below 0.0001"), high = html.find("is above 0.01");
  ASSERT_LT(low, high);
  ASSERT_NE(high, std::string::npos);
  EXPECT_THAT(html.substr(low, high - low), AllOf(HasSubstr("w2.weight (5e-05)"), Not(HasSubstr("w1"))));
  const std::string above = html.substr(high, html.find("</p>", high) - high);
  EXPECT_THAT(above, AllOf(HasSubstr("w3.weight (0.015)"), Not(HasSubstr("w1"))));
}

TEST_F(Pages, NameTheFewWeightsThatLearnLeast) {
  RunRecord run{.name = "a", .folder = "a"};
  WeightLine line{1, 1, 0, {}};
  for (int i = 6; i >= 0; --i) line.parameters.push_back({concat("w", i, ".weight"), 1, 1e-6 * (i + 1)});
  run.metrics.weights = {line};
  EXPECT_THAT(sizes_section({&run, 1}),
              HasSubstr("hardly change: w0.weight (1e-06), w1.weight (2e-06), w2.weight (3e-06), w3.weight (4e-06), "
                        "w4.weight (5e-06) and 2 others</p>"));
}

// The time between the rows is part of the step.
TEST_F(Pages, DrawAStepThatIsAsLongAsItWas) {
  run("a", kLogged);
  RunRecord record = read_run(path("a"));
  const auto ms = record.times.column("ms"), kind = record.times.column("kind");
  for (auto& row : record.times.rows)
    if (row[*kind] == "step") row[*ms] = "1000";
  EXPECT_THAT(drawn_step(record).about, StartsWith("1000 ms: "));
}

TEST_F(Pages, DrawAStepWithTheTimesOfTheRun) {
  run("a", merged(kLogged, {{"parallel.workers", "2"}, {"parallel.strategy", "owt-c"}}));
  RunRecord record = read_run(path("a"));
  const auto forward = record.times.column("forward_ms"), ms = record.times.column("ms");
  const auto name = record.times.column("name"), kind = record.times.column("kind");
  for (auto& row : record.times.rows) {
    if (row[*name] == "conv1") row[*forward] = "12.5";
    if (row[*kind] == "step") row[*ms] = "0";  // so that no time between layers is spread over them
  }
  const Figure figure = drawn_step(record);
  EXPECT_THAT(figure.numbers.rows, Contains(ElementsAre("forward", "conv1", _, "12.5")));
  EXPECT_THAT(figure.numbers.rows, Contains(ElementsAre("start", "fc3 input gradient", _, _)));
  EXPECT_THAT(figure.picture, HasSubstr("alt=\"A step of a in time: "));
}

TEST_F(Pages, KeepWhatWasReadOfAFolderThatIsGone) {
  run("a", kLogged);
  RunReader reader(path("a"));
  EXPECT_TRUE(reader.read());
  EXPECT_FALSE(reader.read());
  fs::rename(path("a"), path("b"));
  EXPECT_TRUE(reader.read());
  EXPECT_FALSE(reader.read());
  EXPECT_THAT(reader.record().wrong, ElementsAre(HasSubstr("is gone; this is what it held")));
  EXPECT_EQ(reader.record().metrics.steps.step.size(), 7u);
  expect_well_formed(page_of(std::vector{reader.record()}));
  fs::rename(path("b"), path("a"));
  EXPECT_TRUE(reader.read());
  EXPECT_THAT(reader.record().wrong, ElementsAre());
}

// A process holds the lock of a run's log while it works on it; its last files are written before it releases the lock.
TEST_F(Pages, AreMadeAgainWhenTheRunEnds) {
  run("a", kLogged);
  const std::string times = read_file(path("a") + "/timing.csv");
  fs::remove(path("a") + "/timing.csv");
  auto lock = std::make_unique<FileLock>(path("a") + "/log.txt");
  RunReader reader(path("a"));
  EXPECT_TRUE(reader.read());
  EXPECT_TRUE(reader.record().running);
  EXPECT_TRUE(reader.record().times.rows.empty());
  write_bytes(path("a") + "/timing.csv", times);
  EXPECT_FALSE(reader.read());
  lock.reset();
  EXPECT_TRUE(reader.read());
  EXPECT_FALSE(reader.record().running);
  EXPECT_FALSE(reader.record().times.rows.empty());
}

// Twenty runs of 15,000 logged steps, one of them of 300,000.
TEST_F(Pages, OfManyLongRunsAreNotLarge) {
  std::vector<RunRecord> runs(20);
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].name = runs[i].folder = concat("run", i);
    const size_t count = i == 0 ? 300000 : 15000;
    StepColumns& steps = runs[i].metrics.steps;
    std::vector<double> values(count);
    for (size_t step = 0; step < count; ++step) {
      steps.step.push_back(static_cast<int64_t>(step));
      values[step] = 1e-3 * static_cast<double>(step);
    }
    steps.epochs = steps.hours = values;
    for (auto* column :
         {&steps.loss, &steps.top1, &steps.rate, &steps.images_per_second, &steps.data_wait_ms, &steps.gradient_norm})
      for (const double value : values) column->push_back(1.5 + std::sin(value + static_cast<double>(i)));
  }
  const std::string html = page_of(runs);
  expect_well_formed(html);
  EXPECT_LT(html.size(), 10'000'000u);
  EXPECT_THAT(html, AllOf(HasSubstr("class=\"line s0 k2"), HasSubstr(">run19<")));
}

TEST_F(Pages, OfManyClassesShowTheWorstPairs) {
  std::string table = "index,label,label_name,top1,top1_name,top1_probability,label_probability\n";
  for (int i = 0; i < 5000; ++i) {
    const int label = i % 1000, taken = label == 7 && i < 4000 ? 8 : label == 3 && i < 2000 ? 5 : label;
    table += format("{},{},class{},{},class{},0.5,{}\n", i, label, label, taken, taken, label == taken ? 0.5 : 0.125);
  }
  class Images : public Dataset {
   public:
    int64_t size() const override { return 5000; }
    Shape image() const override { return {2, 2, 3}; }
    int classes() const override { return 1000; }
    int label(int64_t index) const override { return static_cast<int>(index % 1000); }
    std::vector<std::string> class_names() const override { return {}; }
    uint64_t checksum() const override { return 0; }
    void read(int64_t, const View&, uint8_t* pixels) const override { std::fill_n(pixels, 12, uint8_t{9}); }
  };
  const Answers answers{csv_table_from(table), std::make_shared<Images>(), "test", "weights"};
  const std::string html = answers_section(&answers);
  const size_t pairs = html.find("Pairs of classes that are mixed up most");
  ASSERT_NE(pairs, std::string::npos);
  const size_t first = html.find("<td>class7</td><td>class8</td><td class=\"n\">4</td><td class=\"n\">5</td>", pairs);
  EXPECT_LT(first, html.find("<td>class3</td><td>class5</td><td class=\"n\">2</td><td class=\"n\">5</td>", pairs));
  EXPECT_LT(html.size(), 50'000u);
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
  EXPECT_THAT(html, HasSubstr("1 of 3 images are classified correctly."));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">&lt;dog&gt;</th><td class=\"n none\" style=\"--share:0%\">0</td>"
                              "<td class=\"n wrong\" style=\"--share:65%\">1</td>"));
  const size_t confident = html.find("Wrong with the most confidence");
  EXPECT_LT(html.find("image 1: &lt;dog&gt;, taken for cat (75.0 %)", confident), html.find("image 2: cat", confident));
  const size_t worst = html.find("Worst: ");
  EXPECT_LT(html.find("image 1:", worst), html.find("image 2:", worst));
}

}  // namespace
}  // namespace owt::page_test
