// The user interface of the program: output, errors, exit codes, signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "src/core/cpu_bf16.h"
#include "src/core/dispatch.h"
#include "src/core/gpus.h"
#include "src/files/safetensors.h"
#include "src/predict/memory_need.h"
#include "src/recipe/settings.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "tests/support/environment.h"
#include "tests/support/program.h"

namespace owt::cli_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class CliTest : public ProgramTest {};

TEST_F(CliTest, AWrongCommandLineExitsWith2AndSuggests) {
  EXPECT_EQ(owt("").code, 2);
  const Result command = owt("trian x.toml");
  EXPECT_EQ(command.code, 2);
  EXPECT_THAT(command.err, AllOf(StartsWith("owt: error: "), HasSubstr("did you mean 'train'?")));
  const Result option = owt("train x.toml --wrokers 2");
  EXPECT_EQ(option.code, 2);
  EXPECT_THAT(option.err, HasSubstr("--workers"));
  EXPECT_EQ(owt("train").code, 2);
  EXPECT_EQ(owt("plan " + small_recipe() + " --workers zero").code, 2);
}

TEST_F(CliTest, HelpOfACommandIsGivenInEveryOrder) {
  for (const std::string words : {"help train", "--help train", "-h train", "train -h"})
    EXPECT_THAT(owt(words).out, StartsWith("Usage: owt train [CONFIG]")) << words;
  for (const std::string words : {"help help", "--help --help", "-h help"})
    EXPECT_THAT(owt(words).out, HasSubstr("Commands:")) << words;
  EXPECT_EQ(owt("help trian").code, 2);
}

TEST_F(CliTest, AMisspeltSectionIsNamedBeforeWhatItLacks) {
  std::string text = read_file(small_recipe());
  text.replace(text.find("[optimizer]"), 11, "[optimiser]");
  EXPECT_THAT(owt("plan " + write("bad.toml", text)).err,
              AllOf(HasSubstr("no key 'optimiser'"), HasSubstr("did you mean 'optimizer'?")));
}

TEST_F(CliTest, ARunHasALength) {
  EXPECT_EQ(owt("train " + small_recipe() + " --epochs 0 --out " + file("run")).code, 2);
  const Result by_key = owt("train " + small_recipe() + " --steps 3 --set schedule.epochs=0 --out " + file("run"));
  EXPECT_THAT(by_key.err, HasSubstr("'epochs' is 0, wanted more than 0"));
  EXPECT_FALSE(fs::exists(file("run")));
}

TEST_F(CliTest, ALayerThatNoRunHasIsNamedBeforeAPageIsWritten) {
  ASSERT_EQ(owt("train " + small_recipe() + " --steps 1 --out " + file("run")).code, 0);
  const Result result = owt("report " + file("run") + " --layer conv9 --out " + file("page.html"));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("--layer: no layer 'conv9'"), HasSubstr("did you mean 'conv1'?")));
  EXPECT_FALSE(fs::exists(file("page.html")));
  EXPECT_EQ(owt("watch " + file("run") + " --layer conv9 --port 0").code, 2);
}

TEST_F(CliTest, AMessageThatAFileMakesEndlessKeepsItsFrontAndItsEnd) {
  const Result result = owt("inspect " + write("bad.toml", "[" + std::string(1 << 20, 'x') + "]\n"));
  EXPECT_EQ(result.code, 1);
  EXPECT_LT(result.err.size(), 5000u);
  EXPECT_THAT(result.err, AllOf(StartsWith("owt: error: "), HasSubstr("bytes) ... ")));
}

TEST_F(CliTest, ASimulationSaysWhatItsWorkersDidAndThatItIsOne) {
  const std::string simulate = "simulate " + small_recipe() + " --workers 3 --steps 4 --threads 1 --out ";
  const Result run = owt(simulate + file("ps") + " --delay 1 --straggler 1:4 --straggler 50%:2 --servers 2");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("worker"), HasSubstr("staleness"), HasSubstr("simulated: "),
                             HasSubstr("12 updates"), HasSubstr("accuracy")));
  EXPECT_EQ(owt("report " + file("ps") + " --out " + file("ps.html")).code, 0);
  EXPECT_EQ(owt("eval " + file("ps")).code, 0);
  EXPECT_THAT(owt(simulate + file("ps")).err, HasSubstr("holds a run already"));
}

TEST_F(CliTest, ASimulationOfTimesAloneWantsNoData) {
  const std::string words = concat("simulate ", OWT_SOURCE_DIR, "/configs/imagenet_alexnet.toml --workers 4 --steps 3 ",
                                   "--straggler 1:2 --delay 2 --device cpu --out ", file("times"));
  const std::string nowhere = concat("OWT_DATA=", file("nowhere"));
  EXPECT_EQ(owt(words, nowhere).code, 1);
  const Result run = owt(words + " --times-only --gpu H100", nowhere);
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("idle %"), HasSubstr("staleness"), Not(HasSubstr("accuracy"))));
  EXPECT_EQ(owt("report " + file("times") + " --out " + file("times.html")).code, 0);
}

TEST_F(CliTest, ASimulationRefusesWhatItCannotSimulate) {
  const auto refused = [&](const std::string& words, const std::string& why) {
    const Result result = owt("simulate " + small_recipe() + " --workers 3 --out " + file("none") + " " + words);
    EXPECT_EQ(result.code, 2) << words;
    EXPECT_THAT(result.err, HasSubstr(why)) << words;
  };
  for (const char* straggler : {"1", "3:4", "1:", "1:0", "x:4", ":4", "101%:2", "x%:2", "1:4x"})
    refused(concat("--straggler ", straggler), "wanted WHO:F, e.g. 1:4 or 10%:4");
  refused("--delay -1", "--delay");
  refused("--delay soon", "--delay");
  refused("--backup 3", "must not be a backup");
  refused("--bandwidth fast", "--bandwidth");
  refused("--filter fix9", "--filter 'fix9': wanted significant:T");
  refused("--filter kkt", "--filter 'kkt': wanted significant:T");
  refused("--blocks some", "wanted given or random");
  refused("--strategy sp", "--strategy: ");
  refused("--strategy dp --delay 2", "--delay is for a parameter server");
  refused("--measure --gpu H100", "do not go together");
  refused("--times-only --data .", "--times-only and --data do not go together");
}

// oneDNN hung in the first convolution.
TEST_F(CliTest, ALimitOfThreadsThatIsSmallerThanTheTeamMakesTheTeamSmaller) {
  const std::string train = "train " + small_recipe() + " --threads 3 --steps 2 --set run.conv_algorithm=direct --out ";
  const Result limited = owt(train + file("limited"), "OMP_THREAD_LIMIT=1 timeout 600");
  EXPECT_EQ(limited.code, 0) << limited.err;
}

TEST_F(CliTest, ChoicesOfConvolutionAlgorithmsAreInTheLogAndNotOnTheTerminal) {
  const Result run = owt("train " + small_recipe() + " --steps 2 --out " + file("run"));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out + run.err, Not(HasSubstr("convolution ")));
  EXPECT_THAT(read_file(file("run/log.txt")), HasSubstr("convolution 12x12x3 -> "));
}

TEST_F(CliTest, AnErrorIsOneLineAndExitsWith1) {
  for (const std::string words : {"train no_such_file.toml", "plan no_such_file.toml", "inspect no_such_file"}) {
    const Result result = owt(words);
    EXPECT_EQ(result.code, 1) << words;
    EXPECT_THAT(result.err, StartsWith("owt: error: "));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST_F(CliTest, AMisspeltKeyNamesFileLineAndTheRightKey) {
  std::string text = kSmallRecipe;
  text.replace(text.find("stride = 2"), 6, "strdie");
  const Result result = owt("plan " + write("bad.toml", text));
  EXPECT_EQ(result.code, 1);
  // The table's keys start at line 21 of the recipe's text.
  const int64_t line = std::count(text.begin(), text.begin() + static_cast<int64_t>(text.find("strdie")), '\n') + 1;
  EXPECT_THAT(result.err, AllOf(HasSubstr("bad.toml:" + std::to_string(line) + ": "), HasSubstr("[[layer]] pool1"),
                                HasSubstr("no key 'strdie'"), HasSubstr("did you mean 'stride'?")));
}

TEST_F(CliTest, AnUnknownLayerTypeOrKeyOfTheRecipeIsAnError) {
  std::string text = kSmallRecipe;
  text.replace(text.find("\"lrn\""), 5, "\"lnr\"");
  EXPECT_THAT(owt("plan " + write("bad.toml", text)).err, AllOf(HasSubstr("'lnr'"), HasSubstr("did you mean 'lrn'?")));
  EXPECT_THAT(owt("plan " + small_recipe() + " --set data.bacth=8").err,
              AllOf(HasSubstr("--set data.bacth=8"), HasSubstr("did you mean 'batch'?")));
  EXPECT_THAT(owt("plan " + small_recipe() + " --set shedule.epochs=8").err, HasSubstr("did you mean 'schedule'?"));
}

TEST_F(CliTest, OutputsAreCheckedBeforeTheWork) {
  const std::string recipe = small_recipe(), none = file("none/file");
  const auto refused = [&](const std::string& words) {
    const Result result = owt(words + " " + none);
    EXPECT_EQ(result.code, 1) << words;
    EXPECT_THAT(result.err, AllOf(HasSubstr("cannot write " + none), HasSubstr("none is no folder"))) << words;
    EXPECT_EQ(result.out, "") << words;
  };
  refused("time " + recipe + " --steps 1 --trace");
  refused("time " + recipe + " --steps 1 --csv");
  refused("plan " + recipe + " --workers 2 --gpu H200 --bandwidth 1Gbit --json");
  refused("bench-comm --seconds 0.1 --sizes 4K --json");
  const std::string both = file("both");
  EXPECT_EQ(owt("time " + recipe + " --steps 1 --csv " + both + " --trace " + both).code, 2);
}

TEST_F(CliTest, NamesFromFilesDoNotControlTheTerminal) {
  const std::string name = "\x1b[2Jw";
  SafetensorsWriter file(this->file("w.safetensors"), {{name, {1}}});
  file.write(name, std::vector<float>{1});
  file.finish();
  const Result shown = owt("inspect " + this->file("w.safetensors"));
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("\\x1b[2Jw"), Not(HasSubstr("\x1b"))));
  std::string other = read_file(this->file("w.safetensors"));
  other.replace(other.find("F32"), 3, "\\u001b");
  other[0] = static_cast<char>(other[0] + 3);  // the header is as much longer
  const Result strange = owt("inspect " + write("other.safetensors", other));
  EXPECT_EQ(strange.code, 0) << strange.err;
  EXPECT_THAT(strange.out, AllOf(HasSubstr("\\x1b[2Jw"), HasSubstr("\\x1b "), Not(HasSubstr("\x1b"))));
}

TEST_F(CliTest, ImpossibleGeometryNamesTheLayerAndItsInput) {
  std::string text = kSmallRecipe;
  text.replace(text.find("kernel = 2\nstride = 2"), 10, "kernel = 9");
  const Result result = owt("plan " + write("bad.toml", text));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("pool2"), HasSubstr("6x6x16")));
}

TEST_F(CliTest, MissingDataSaysWhereItLookedAndTheCure) {
  const Result result =
      owt("train " + config("cifar10_quick.toml") + " --data " + file("nowhere") + " --out " + file("run"));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("nowhere"), HasSubstr("fetch_cifar10.sh")));
  EXPECT_FALSE(fs::exists(file("run")));
}

TEST_F(CliTest, DrawsPhotographsAndSaysWhichOptionsAreNotForThem) {
  const std::string draw = "prepare synthetic " + file("pictures");
  const Result drawn = owt(draw + " --photos --train 4 --test 2 --classes 20");
  ASSERT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_THAT(drawn.out, AllOf(HasSubstr("pictures/train: 4 photographs of 20 classes"), HasSubstr("val: 2 photo")));
  EXPECT_TRUE(fs::is_regular_file(file("pictures/train/red_triangle/0000003.jpg")));
  EXPECT_THAT(owt(draw + " --photos").err, HasSubstr("exists already; remove it"));
  EXPECT_THAT(owt(draw + " --photos --force").err, HasSubstr("--force replaces no photographs"));
  EXPECT_THAT(owt(draw + " --classes 20").err, HasSubstr("--classes is for --photos"));
}

TEST_F(CliTest, TrainsEvaluatesAndInspectsPreparedData) {
  ASSERT_EQ(owt("prepare synthetic " + file("data") + " --train 500 --test 100").code, 0);
  EXPECT_EQ(owt("prepare synthetic " + file("data") + " --train 500 --test 100").code,
            1);  // never overwritten
  EXPECT_THAT(owt("inspect " + file("data")).out, HasSubstr("500 images of 32x32x3, 10 classes of 50 images each"));
  const Result sheet = owt("inspect " + file("data") + " --samples 12 --sheet " + file("sheet.png") + " --recipe " +
                           config("cifar10_bn.toml"));
  ASSERT_EQ(sheet.code, 0) << sheet.err;
  EXPECT_THAT(sheet.out, HasSubstr("12 training samples"));
  EXPECT_EQ(read_file(file("sheet.png")).substr(1, 3), "PNG");
  const std::string recipe = config("cifar10_quick.toml");
  const Result trained = owt("train " + recipe + " --data " + file("data") + " --out " + file("run") +
                             " --epochs 1 --workers 2 --parallel owt-c --timing --set schedule.milestones=[1]");
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out,
              AllOf(HasSubstr("test accuracy: top-1"), HasSubstr("conv2"), HasSubstr("rest"), HasSubstr(file("run"))));
  EXPECT_THAT(trained.out, ContainsRegex("\nstep [0-9.]+ ms: [0-9]+ % [^\n]+\\.\ntest accuracy"));
  const std::string weights = file("run") + "/checkpoints/step-00000005/weights.safetensors";
  const Result evaluated = owt("eval " + file("run") + "/config.toml --weights " + weights);
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  const std::string accuracy = evaluated.out.substr(0, evaluated.out.find(", loss"));
  EXPECT_THAT(trained.out, HasSubstr("test accuracy: " + accuracy));
  EXPECT_THAT(owt("inspect " + file("run")).out,
              AllOf(HasSubstr("step 5"), HasSubstr("conv1.weight"), HasSubstr("32x3x5x5")));
  const Result sheet_of_run = owt("inspect " + file("run") + " --sheet " + file("none.png"));
  EXPECT_EQ(sheet_of_run.code, 1);
  EXPECT_THAT(sheet_of_run.err, HasSubstr("is a run folder"));
  fs::remove_all(file("run") + "/checkpoints");
  const Result no_checkpoint = owt("inspect " + file("run"));
  EXPECT_EQ(no_checkpoint.code, 0) << no_checkpoint.err;
  EXPECT_THAT(no_checkpoint.out, HasSubstr("no checkpoint yet"));

  const std::string batch = file("data") + "/cifar-10-batches-bin/data_batch_2.bin";
  fs::resize_file(batch, fs::file_size(batch) - 7);
  const Result truncated = owt("train " + recipe + " --data " + file("data") + " --out " + file("other"));
  EXPECT_EQ(truncated.code, 1);
  EXPECT_THAT(truncated.err, HasSubstr("data_batch_2.bin"));
}

TEST_F(CliTest, InspectReportsTheMemoryThatThePlanNeeds) {
  const std::string recipe = config("cifar10_quick.toml");
  for (const std::string strategy : {"dp", "dp-zero", "dp-star", "ps", "owt-a", "owt-c", "owt-d"}) {
    const Overrides on_four{{"parallel.workers", "4"}, {"parallel.strategy", strategy}};
    const Settings settings = read_settings(recipe, on_four);
    const MemoryNeed need = memory_need(make_plan(settings.model, settings.plan_request()));
    const Result shown = owt("inspect " + recipe + " --workers 4 --parallel " + strategy + " --device cpu");
    EXPECT_THAT(shown.out,
                HasSubstr(format("weights, gradients and optimizer {:.1f} MB, activations and their gradients "
                                 "{:.1f} MB, pieces of checkpoints {:.1f} MB",
                                 static_cast<double>(need.weight_bytes) / 1e6, need.step_row_bytes * 100 / 1e6,
                                 static_cast<double>(need.piece_bytes) / 1e6)))
        << strategy << shown.err;
  }
}

TEST_F(CliTest, PlanShowsEveryLayerEveryTransferAndEveryStrategy) {
  const Result plan = owt("plan " + small_recipe() + " --workers 4 --parallel owt-c");
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("fc1 input gradient"), HasSubstr("2-3 of 10"), HasSubstr("all_gather"),
                              HasSubstr("owt-b"), HasSubstr("<- shown above")));
}

TEST_F(CliTest, PlanSaysWhichOptionsGivePredictions) {
  const Result plan = owt("plan " + small_recipe() + " --workers 2");
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("For predicted times add --bandwidth"), Not(HasSubstr("exposed ms"))));
}

TEST_F(CliTest, BenchCommMeasuresEverySizeOfARangeOnce) {
  const Result bench = owt("bench-comm --workers 2 --sizes 4K..16K --collective all_reduce --seconds 1e4");
  ASSERT_EQ(bench.code, 0) << bench.err;
  const size_t first = bench.out.find("16384");
  ASSERT_NE(first, std::string::npos) << bench.out;
  EXPECT_EQ(bench.out.find("16384", first + 1), std::string::npos) << bench.out;
}

TEST_F(CliTest, PlanPredictsEveryStrategyForMeasuredAndForGivenLinks) {
  const std::string links = file("links.json"), times = file("t.csv"), json = file("p.json");
  const Result bench = owt("bench-comm --workers 2 --sizes 4K..64K --seconds 1e4 --json " + links);
  ASSERT_EQ(bench.code, 0) << bench.err;
  EXPECT_THAT(bench.out, AllOf(HasSubstr("2 workers on 1 host, f32 on cpu"), HasSubstr("all_to_all"),
                               HasSubstr("65536"), HasSubstr("busbw")));
  ASSERT_EQ(owt("time " + small_recipe() + " --workers 1 --steps 2 --keep-gradients --csv " + times).code, 0);
  for (const std::string& words :
       {"--links " + links + " --measure", "--links " + links + " --times " + times, std::string("--gpu H200"),
        std::string("--bandwidth 1Gbit --hosts 2 --ranks-here 2")}) {
    const Result plan = owt("plan " + small_recipe() + " --workers 2 " + words + " --json " + json);
    ASSERT_EQ(plan.code, 0) << plan.err;
    EXPECT_THAT(plan.out, AllOf(HasSubstr("exposed ms"), HasSubstr("<- best"), HasSubstr("\nowt-d "),
                                HasSubstr("ms a step"), HasSubstr("a batch")))
        << words;
    EXPECT_THAT(read_file(json), AllOf(HasSubstr("owt prediction 1"), HasSubstr("\"owt-c\""))) << words;
  }
  const Result launches = owt("plan " + small_recipe() + " --workers 1 --gpu H200 --launches --json " + json);
  EXPECT_THAT(launches.out, AllOf(HasSubstr("softmax_rows"), HasSubstr("images/s"), HasSubstr("not a measurement")));
  EXPECT_THAT(read_file(json), HasSubstr("\"kernel\": \"softmax_rows\""));
}

TEST_F(CliTest, PlanSaysWhichNumbersOfWorkersTheHostsOfMeasuredLinksHold) {
  const std::string links = file("links.json");
  ASSERT_EQ(owt("bench-comm --workers 4 --sizes 4K --seconds 2 --json " + links).code, 0);
  std::string text = read_file(links);
  text.replace(text.find("\"hosts\": 1"), 10, "\"hosts\": 2");
  write_bytes(links, text);
  const auto plan = [&](const std::string& words) {
    return owt("plan " + small_recipe() + " --gpu H200 --links " + links + " --workers " + words);
  };
  EXPECT_THAT(plan("6").out, HasSubstr("3 hosts with 2 workers each"));
  const Result five = plan("5");
  EXPECT_EQ(five.code, 2);
  EXPECT_THAT(five.err, HasSubstr("--links " + links +
                                  " is of hosts with 2 workers each, which 5 workers do not fill; "
                                  "use a multiple of 2, or say with --hosts, a divisor of 5, on how many they are"));
  EXPECT_THAT(plan("5 --hosts 5").out, HasSubstr("5 hosts with 1 worker each"));
}

TEST_F(CliTest, PlanListsTheActionsOfAStep) {
  const Result plan = owt("plan " + small_recipe() + " --workers 2 --parallel owt-a --parallel dp --steps");
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("backward weights      1  fc1 (updated at once)\n"),
                              HasSubstr("gradients, bucket 0\n"), HasSubstr("   1  forward                  conv1\n")));
}

TEST_F(CliTest, PlanDrawsTheStrategiesAskedForOrTheFastestAndDp) {
  const std::string svg = file("step.svg");
  const std::string words = "plan " + small_recipe() + " --workers 2 --gpu H200 --draw " + svg;
  ASSERT_EQ(owt(words + " --parallel owt-a --parallel owt-c").code, 0);
  EXPECT_THAT(read_file(svg), AllOf(HasSubstr(">owt-a of small on 2 workers"),
                                    HasSubstr(">owt-c of small on 2 workers"), Not(HasSubstr(">dp of"))));
  ASSERT_EQ(owt(words).code, 0);
  EXPECT_THAT(read_file(svg), HasSubstr(">dp of small on 2 workers"));
  const Result nothing_predicted = owt("plan " + small_recipe() + " --workers 2 --draw " + svg);
  EXPECT_EQ(nothing_predicted.code, 2);
  EXPECT_THAT(nothing_predicted.err, HasSubstr("--draw is for predictions"));
}

TEST_F(CliTest, PlanComparesAllStrategiesTheFastestFirst) {
  const std::string words = "plan " + small_recipe() + " --workers 2 --gpu H200 --bandwidth 10Mbit --compare";
  const Result plan = owt(words + " --ascii --json " + file("p.json"));
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("idle ms\n* "), HasSubstr("# computes"), Not(HasSubstr("busiest link"))));
  for (const std::string& name : strategy_names()) EXPECT_THAT(plan.out, HasSubstr(" " + name + " "));
  EXPECT_THAT(read_file(file("p.json")), HasSubstr("\"refused\": []"));
  // Block characters are used only if the locale supports them.
  for (const auto& [locale, bar] : {std::pair("C", "# computes"), {"C.UTF-8", "█ computes"}}) {
    const Variable all("LC_ALL", locale);
    EXPECT_THAT(owt(words).out, HasSubstr(bar)) << locale;
  }
  const Result slices = owt(words + " --set data.accumulate=2");
  EXPECT_THAT(slices.out, AllOf(HasSubstr("Not possible here:\n  pipeline: data.accumulate is 2"), HasSubstr("\n* ")));
  EXPECT_THAT(owt("plan " + small_recipe() + " --workers 2 --compare").err, HasSubstr("--compare is for predictions"));
}

TEST_F(CliTest, InspectDrawsTheNetworkOfARecipeARunAndACheckpoint) {
  const std::string svg = file("net.svg");
  ASSERT_EQ(owt("inspect " + small_recipe() + " --workers 2 --parallel owt-c --draw " + svg).code, 0);
  const std::string of_recipe = read_file(svg);
  EXPECT_THAT(of_recipe,
              AllOf(HasSubstr("on 2 workers under owt-c"), HasSubstr("class=\"cut\""), HasSubstr(">fc1</text>")));
  EXPECT_THAT(owt("inspect " + small_recipe() + " --draw " + file("none/net.svg")).err, HasSubstr("none"));
  ASSERT_EQ(owt("prepare synthetic " + file("data") + " --train 500 --test 100").code, 0);
  const Result of_data = owt("inspect " + file("data") + " --draw " + svg);
  EXPECT_EQ(of_data.code, 1);
  EXPECT_THAT(of_data.err, HasSubstr("is a data set; name a recipe"));
  ASSERT_EQ(owt("train " + config("cifar10_quick.toml") + " --data " + file("data") + " --out " + file("run") +
                " --epochs 1 --workers 2 --parallel owt-c --set schedule.milestones=[1]")
                .code,
            0);
  const std::string checkpoint = file("run") + "/checkpoints/step-00000005";
  for (const std::string& path : {file("run"), checkpoint}) {
    const Result drawn = owt("inspect " + path + " --draw " + svg);
    EXPECT_EQ(drawn.code, 0) << drawn.err;
    EXPECT_THAT(read_file(svg), AllOf(HasSubstr("on 2 workers under owt-c"), HasSubstr(">conv3</text>"))) << path;
  }
  const Result of_tensors = owt("inspect " + checkpoint + "/weights.safetensors --draw " + svg);
  EXPECT_EQ(of_tensors.code, 1);
  EXPECT_THAT(of_tensors.err, HasSubstr("holds only tensors; name its run"));
}

TEST_F(CliTest, PlanTakesHostsAndModelRanks) {
  const std::string words = "plan " + small_recipe() + " --workers 4 --set data.batch=16 --gpu H200 --bandwidth 1Gbit";
  const Result two = owt(words + " --hosts 2 --latency 20us --local-bandwidth 100GB/s --local-latency 3us");
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_THAT(
      two.out,
      AllOf(HasSubstr("2 hosts with 2 workers each: within a host 3 us, 100000 MB/s; between hosts 20 us, 125 MB/s"),
            HasSubstr("owt-a 2x2")));
  const Result grid = owt(words + " --model-ranks 2");
  EXPECT_EQ(grid.code, 0) << grid.err;
  EXPECT_THAT(grid.out, HasSubstr("owt-c 2x2"));
}

TEST_F(CliTest, PlanDealsRowsByShares) {
  const std::string words = "plan " + small_recipe() + " --workers 4 --set data.batch=16 ";
  EXPECT_THAT(owt(words + "--shares 4,2,1,1").out, HasSubstr("16 rows per step (8 + 4 + 2 + 2 per worker)"));
  const std::string by_speed = words + "--speeds 1,1,.5,.5 --gpu H200 --bandwidth 1Gbit";
  EXPECT_THAT(owt(by_speed).out, HasSubstr("16 rows per step (4 per worker)"));
  const Result measured = owt(by_speed + " --shares measured");
  EXPECT_EQ(measured.code, 0) << measured.err;
  EXPECT_THAT(measured.out, HasSubstr("16 rows per step (5 + 5 + 3 + 3 per worker)"));
  EXPECT_EQ(owt(words + "--shares 2,1,1").code, 1);
}

TEST_F(CliTest, WrongOptionsOfThePlannerExitWith2) {
  const std::string plan = "plan " + small_recipe() + " --workers 4 --set data.batch=16 ";
  const auto wrong = [&](const std::string& words, const std::string& why) {
    const Result result = owt(words);
    EXPECT_EQ(result.code, 2) << words;
    EXPECT_THAT(result.err, AllOf(StartsWith("owt: error: "), HasSubstr(why))) << words;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  };
  wrong(plan + "--bandwidth fast", "--bandwidth: 'fast'");
  wrong(plan + "--bandwidth 1Gbit --latency 50", "--latency: '50'");
  wrong(plan + "--bandwidth 1Gbit --local-bandwidth 1", "--local-bandwidth: '1'");
  wrong(plan + "--bandwidth 1Gbit --local-latency x", "--local-latency: 'x'");
  wrong(plan + "--bandwidth 1Gbit --hosts 3", "cannot hold 4 workers evenly");
  wrong(plan + "--bandwidth 1Gbit --hosts 0", "--hosts");
  wrong(plan + "--bandwidth 1Gbit --ranks-here 0", "--ranks-here");
  wrong(plan + "--bandwidth 1Gbit --gpu H200 --measure", "one of --gpu, --machine, --times and --measure");
  wrong(plan + "--bandwidth 1Gbit --gpu H9", "there are H200");
  wrong(plan + "--gpu H200 --machine k20x8", "--machine and --gpu do not go together");
  wrong(plan + "--machine k20x8 --hosts 2", "--machine and --hosts do not go together");
  wrong(plan + "--machine k20x8 --latency 1us", "--machine and --latency do not go together");
  wrong(plan + "--machine k20x8 --ranks-here 2", "--machine and --ranks-here do not go together");
  wrong(plan + "--measure --images-per-second 7", "needs the GPU with this speed");
  wrong(plan + "--gpu H200 --images-per-second 0", "--images-per-second");
  wrong(plan + "--gpu H200 --hosts 2", "--bandwidth and --latency, or --links");
  wrong(plan + "--gpu H200 --launches", "there are 4; add --workers 1");
  wrong(plan + "--bandwidth 1Gbit --launches", "--gpu NAME");
  wrong(plan + "--links x.json --bandwidth 1Gbit", "do not go together");
  wrong(plan + "--gpu H200 --latency 20us", "give both");
  wrong(plan + "--hosts 2", "--hosts is for predictions");
  wrong(plan + "--json x.json", "--json is for predictions");
  wrong(plan + "--model-ranks 0", "--model-ranks");
  wrong(plan + "--shares 2,,1", "--shares 2,,1: wanted numbers, as 2,1,1, or measured or equal");
  wrong(plan + "--shares quick", "--shares quick: wanted numbers");
  wrong(plan + "--speeds 1,2", "--speeds 1,2: wanted a positive number for each of 4 workers");
  wrong(plan + "--speeds 1,2,0,1", "--speeds 1,2,0,1: wanted a positive number");
  wrong(plan + "--speeds measured", "--speeds measured: wanted numbers, as 2,1,1 (see");
  wrong("bench-comm --workers 1", "--workers");
  wrong("bench-comm --sizes 4K..1", "the smaller size first");
  wrong("bench-comm --sizes 4Q", "--sizes: '4Q'");
  wrong("bench-comm --collective all", "wanted one of all_reduce, all_gather");
  wrong("bench-comm --seconds 0", "--seconds");
  EXPECT_EQ(owt(plan + "--links " + file("none.json")).code, 1);
  EXPECT_EQ(owt(plan + "--bandwidth 1Gbit --times " + file("none.csv")).code, 1);
  EXPECT_EQ(owt(plan + "--bandwidth 1Gbit --model-ranks 3 --gpu H200").code, 1);
  EXPECT_EQ(owt("plan " + small_recipe() + " --workers 2 --precision bf16 --gpu K20").code, 1);
}

TEST_F(CliTest, PlanAndTimeTakeAStepInMicroBatches) {
  const std::string slices = small_recipe() + " --set data.accumulate=2 ";
  EXPECT_THAT(owt("plan " + slices + "--workers 2 --parallel owt-c").out, HasSubstr(", 2 micro-batches, 4 rounds, "));
  EXPECT_THAT(owt("plan " + slices + "--workers 2 --parallel dp --steps").out, HasSubstr(" micro-batch round  of\n"));
  EXPECT_THAT(owt("plan " + slices + "--workers 2 --gpu H200").out,
              AllOf(HasSubstr("\npipeline   data.accumulate is 2, but a pipeline"), HasSubstr("<- best")));
  EXPECT_THAT(owt("plan " + slices + "--workers 1 --gpu H200 --launches").err,
              HasSubstr("--launches needs a step without gradient accumulation, but data.accumulate is 2"));
  EXPECT_EQ(owt("time " + slices + "--workers 2 --steps 1").code, 0);
  const Result many = owt("plan " + small_recipe() + " --workers 2 --set data.accumulate=1000");
  EXPECT_EQ(many.code, 1);
  EXPECT_THAT(many.err, HasSubstr("data.accumulate is 1000, and a worker has "));
}

TEST_F(CliTest, PlanPredictsForAMachineThatAFileDescribes) {
  const Result plan = owt("plan imagenet_alexnet --workers 8 --machine k20x8");
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("2 hosts with 4 workers each"),
                              HasSubstr("326.7 images/s of one K20 with 128 rows a step"),
                              HasSubstr("\n  Source: Krizhevsky 2014"), HasSubstr("\n  Assumed: ")));
  EXPECT_THAT(owt("plan alexnet_owt --workers 2 --machine k20x9").err, HasSubstr("did you mean 'k20x8'?"));
  EXPECT_THAT(owt("plan " + small_recipe() + " --workers 16 --set data.batch=16 --machine k20x8").err,
              HasSubstr("has 8 cards, and 16 workers want one each"));
  const Result known = owt("plan " + small_recipe() + " --workers 2 --gpu K20 --images-per-second 500");
  EXPECT_THAT(known.out, HasSubstr("500 images/s of one K20"));
}

TEST_F(CliTest, BenchCommTakesSizesAndCollectives) {
  // On a busy machine one call may take a second; with enough time nothing is skipped.
  const Result bench = owt(
      "bench-comm --workers 3 --threads 1 --sizes 1K,12K --collective broadcast --collective all_reduce --seconds 1e4");
  ASSERT_EQ(bench.code, 0) << bench.err;
  EXPECT_THAT(bench.out, AllOf(HasSubstr("3 workers"), HasSubstr("\nbroadcast              12288 "),
                               HasSubstr("\nall_reduce              1032 "), Not(HasSubstr("all_gather"))));
  const Result brief = owt("bench-comm --workers 2 --sizes 4K..256M --collective all_reduce --seconds 0.01");
  ASSERT_EQ(brief.code, 0) << brief.err;
  EXPECT_THAT(brief.err, HasSubstr("is skipped: it would take longer"));
}

TEST_F(CliTest, CheckHoldsGradientsAgainstTheLossAndOneWorker) {
  const Result two = owt("check " + small_recipe() + " --workers 2 --samples 1");
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_THAT(two.out, AllOf(HasSubstr("16 rows on 2 workers under owt-a, fp32 on the CPU"), HasSubstr("one worker"),
                             HasSubstr("rounding"), Not(HasSubstr("wrong"))));
  const Result one = owt("check " + small_recipe() + " --samples 1 --rows 4");
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_THAT(one.out, AllOf(HasSubstr("4 rows on 1 worker"), HasSubstr("there is nothing to compare")));
}

TEST_F(CliTest, TimeWritesTableCsvAndTrace) {
  const Result time =
      owt("time " + small_recipe() + " --workers 2 --steps 5 --csv " + file("t.csv") + " --trace " + file("t.json"));
  ASSERT_EQ(time.code, 0) << time.err;
  EXPECT_THAT(time.out, AllOf(HasSubstr("conv1"), HasSubstr("fc1 input"), HasSubstr("images/s")));
  EXPECT_THAT(time.out, ContainsRegex("\nstep [0-9.]+ ms: [0-9]+ % [^\n]+\\.\n$"));
  const std::string csv = read_file(file("t.csv"));
  EXPECT_THAT(csv, AllOf(StartsWith("kind,name,"), ContainsRegex("\nlayer,conv1,[^\n]*,0\n"),
                         ContainsRegex("\nlayer,conv1,[^\n]*,1\n"), ContainsRegex("\nstep,step,[^\n]*,1\n$")));
  EXPECT_THAT(read_file(file("t.json")), AllOf(HasSubstr("traceEvents"), HasSubstr("conv2")));
}

TEST_F(CliTest, TimeSaysWhatWouldBeIfPartsOfTheStepWereFaster) {
  const std::string time = "time " + small_recipe() + " --workers 2 --steps 4 ";
  const Result shown = owt(time + "--what-if --trace " + file("t.json"));
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(ContainsRegex("\nWhat if: the simulated step takes [0-9.]+ ms; "
                                             "[0-9.]+ ms were measured"),
                               ContainsRegex("\nconv1  .*\n"), ContainsRegex("\nall transfers  .*\n"),
                               ContainsRegex("\n`step result`  .*\n")));
  EXPECT_THAT(read_file(file("t.json")),
              AllOf(HasSubstr("critical path of a typical step"), HasSubstr("\"longest_way\":true")));
  EXPECT_THAT(owt(time).out, Not(HasSubstr("What if")));
  const Result evaluation = owt(time + "--what-if --evaluation");
  EXPECT_EQ(evaluation.code, 2);
  EXPECT_THAT(evaluation.err, HasSubstr("leave out --evaluation"));
}

TEST_F(CliTest, TimeTakesLinksOfAsManyRanks) {
  ASSERT_EQ(owt("bench-comm --workers 2 --seconds 1 --sizes 4K..64K --json " + file("links.json")).code, 0);
  const std::string time = "time " + small_recipe() + " --steps 2 --links ";
  const Result fits = owt(time + file("links.json") + " --workers 2");
  EXPECT_EQ(fits.code, 0) << fits.err;
  const Result other = owt(time + file("links.json") + " --workers 3");
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(
      other.err,
      HasSubstr("links.json was measured with 2 workers, but there are 3 here; run owt bench-comm with as many"));
  EXPECT_EQ(owt(time + file("none.json") + " --workers 2").code, 1);
}

TEST_F(CliTest, TimeShowsTheTableThoughTheTraceDoesNotFitOnTheDisk) {
  const Result time = owt("time " + small_recipe() + " --workers 2 --steps 40 --trace " + file("t.json"),
                          "trap '' XFSZ; ulimit -f 16;");
  EXPECT_EQ(time.code, 1);
  EXPECT_THAT(time.out, AllOf(HasSubstr("conv1"), HasSubstr("images/s")));
  EXPECT_THAT(time.err, AllOf(HasSubstr("owt: error: cannot write " + file("t.json")), HasSubstr("free some space")));
  EXPECT_FALSE(fs::exists(file("t.json")));
}

TEST_F(CliTest, DevicesListsTheGpusOrSaysWhyThereIsNone) {
  const Result devices = owt("devices");
  EXPECT_EQ(devices.code, 0) << devices.err;
  const Gpus gpus = find_gpus();
  for (const Gpu& gpu : gpus.list) EXPECT_THAT(devices.out, HasSubstr(gpu.name));
  if (gpus.list.empty()) {
    EXPECT_THAT(devices.out, HasSubstr(gpus.why_none));
  }
}

TEST_F(CliTest, TheDeviceIsThatOfTheOptionBeforeThatOfTheRecipe) {
  std::string on_cuda = kSmallRecipe;
  on_cuda.replace(on_cuda.find("device = \"cpu\""), 14, "device = \"cuda\"");
  const std::string recipe = write("cuda.toml", on_cuda);
  EXPECT_EQ(owt("time " + recipe + " --device cpu --steps 1").code, 0);
  if (gpu_present()) return;
  const Result none = owt("time " + recipe + " --steps 1");
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, AllOf(StartsWith("owt: error: device 'cuda': "), HasSubstr("--device cpu")));
  // By default the program uses the CPU if there is no usable GPU, and reports the reason if there may be one.
  const Result chosen = owt("train " + recipe + " --device auto --steps 1 --out " + file("run"));
  EXPECT_EQ(chosen.code, 0) << chosen.err;
  const auto says_why = HasSubstr("on the CPU: " + find_gpus().why_none);
  if (nvidia_driver_here())
    EXPECT_THAT(chosen.err, says_why);
  else
    EXPECT_THAT(chosen.err, Not(says_why));
}

TEST_F(CliTest, TheVersionSaysWhetherThereIsTheCudaBackEnd) {
  EXPECT_THAT(owt("--version").out, AllOf(StartsWith("owt "), HasSubstr(kCudaBuilt ? ", with the" : ", without the"),
                                          EndsWith(" CUDA back-end\n")));
}

TEST_F(CliTest, AnUnknownDeviceOrPrecisionOrOneThatDoesNotFitIsAnError) {
  const Result device = owt("time " + small_recipe() + " --device gpu");
  EXPECT_EQ(device.code, 2);
  EXPECT_THAT(device.err, HasSubstr("wanted cpu, cuda or auto"));
  const Result precision = owt("time " + small_recipe() + " --precision fp16");
  EXPECT_EQ(precision.code, 2);
  EXPECT_THAT(precision.err, HasSubstr("wanted fp32, tf32 or bf16"));
  const Result on_cpu = owt("time " + small_recipe() + " --device cpu --precision tf32");
  EXPECT_EQ(on_cpu.code, 1);
  EXPECT_THAT(on_cpu.err, AllOf(HasSubstr("'tf32'"), HasSubstr("--precision fp32")));
  EXPECT_EQ(owt("plan " + small_recipe() + " --workers 2 --precision tf32").code, 0);  // to look at
}

TEST_F(CliTest, Bf16WorksOnEveryCpuAndSaysWhereItIsSlower) {
  const std::string time = "time " + small_recipe() + " --steps 1 --device cpu --precision bf16";
  for (const char* const level : {"x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
    const Variable limit("OWT_MAX_CPU", level), onednn("ONEDNN_MAX_CPU_ISA", nullptr);
    const Result result = owt(time);
    EXPECT_EQ(result.code, 0) << level << result.err;
    EXPECT_THAT(result.err, HasSubstr("slower than fp32")) << level;
  }
  if (!cpu_has_bf16()) return;
  EXPECT_THAT(owt(time).err, Not(HasSubstr("slower than fp32")));
}

TEST_F(CliTest, AnUnknownLevelOfTheProcessorIsAnError) {
  const Variable limit("OWT_MAX_CPU", "avx3");
  const Result result = owt("recipes");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("OWT_MAX_CPU is 'avx3'"), HasSubstr("avx512_bf16")));
}

TEST_F(CliTest, ANotFiniteLossNamesTheStep) {
  const Result result =
      owt("train " + small_recipe() + " --out " + file("run") + " --workers 2 --set optimizer.learning_rate=1e20");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("the first layer with a value that is not finite is"));
}

TEST_F(CliTest, AFullDiskIsAnErrorAndKeepsTheLastCheckpoint) {
  const std::string recipe = small_recipe();
  ASSERT_EQ(owt("train " + recipe + " --out " + file("run") + " --steps 5").code, 0);
  // Files may grow to one block of 1024 bytes only (SIGXFSZ is ignored, so that the write itself fails).
  const Result full =
      owt("train " + recipe + " --out " + file("run") + " --steps 9 --resume auto", "trap '' XFSZ; ulimit -f 8;");
  EXPECT_EQ(full.code, 1);
  EXPECT_THAT(full.err,
              AllOf(HasSubstr("owt: error: the last checkpoint, of step 9, could not be written: cannot write"),
                    HasSubstr("(step 5); resume with --resume auto")));
  EXPECT_THAT(owt("inspect " + file("run")).out, HasSubstr("step 5,"));
  EXPECT_EQ(owt("train " + recipe + " --out " + file("run") + " --steps 9 --resume auto").code, 0);
}

// The files that a run opens do not get the lines of the terminal.
TEST_F(CliTest, AProcessMayBeStartedWithoutStandardStreams) {
  const std::string run = file("run");
  const int status = std::system(concat("'" OWT_PROGRAM "' train ", small_recipe(), " --steps 3 --set run.log_every=1 ",
                                        "--out ", run, " <&- >&- 2>&-")
                                     .c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0);
  std::istringstream metrics(read_file(run + "/metrics.jsonl"));
  int lines = 0;
  for (std::string line; std::getline(metrics, line); ++lines)
    EXPECT_TRUE(line.starts_with('{') && line.ends_with('}')) << line;
  EXPECT_GT(lines, 3);
}

TEST_F(CliTest, AFileThatReachesTheLimitOfSizesIsAnErrorOfOneLine) {
  const Result result = owt("prepare synthetic --train 50 --test 10 " + file("shapes"), "ulimit -f 8;");
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, AllOf(StartsWith("owt: error: "), HasSubstr("File too large")));
}

// About 50 TB of activations.
TEST_F(CliTest, MemoryThatThereIsNotIsRefusedBeforeTheFirstStepAndNothingIsWritten) {
  const std::string recipe = write("large.toml", recipe_of("[3, 32, 32]", "train_images = 40\nbatch = 16000000\n", R"(
    { name = "conv1", type = "conv", out = 256, kernel = 3, pad = 1 },
    { name = "fc", type = "dense", out = 10 })"));
  for (const std::string& command : {"train --device cpu --out " + file("run"), std::string("time --device cpu")}) {
    const Result result = owt(concat(command, " --workers 2 ", recipe));
    EXPECT_EQ(result.code, 1) << command;
    EXPECT_THAT(result.err, AllOf(HasSubstr("of memory for steps of 16000000 images, and "),
                                  HasSubstr(" images would fit (data.batch)")))
        << command;
  }
  EXPECT_FALSE(fs::exists(file("run")));
}

TEST_F(CliTest, AnUnwritableRunFolderIsAnError) {
  write("plain", "a file");
  const Result result = owt("train " + small_recipe() + " --out " + file("plain") + "/run");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("--out"));
}

TEST_F(CliTest, SignalsToStopWriteACheckpointExitWith75AndTheRunResumes) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
    const std::string run = file("run" + std::to_string(signal)), recipe = small_recipe();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (!std::freopen(file("child").c_str(), "w", stderr) || !std::freopen(file("child").c_str(), "a", stdout))
        _exit(9);
      execl(OWT_PROGRAM, OWT_PROGRAM, "train", recipe.c_str(), "--out", run.c_str(), "--workers", "2", "--epochs",
            "100000", static_cast<char*>(nullptr));
      _exit(9);
    }
    // It has begun when the first steps are in the metrics.
    const std::string metrics = run + "/metrics.jsonl";
    while (!(fs::exists(metrics) && fs::file_size(metrics) > 0) && waitpid(child, nullptr, WNOHANG) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    kill(child, signal);
    if (signal != SIGINT) kill(child, SIGTERM);  // repeated signals change nothing
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << read_file(file("child"));
    EXPECT_EQ(WEXITSTATUS(status), 75) << read_file(file("child"));
    EXPECT_THAT(read_file(metrics), HasSubstr("\"state\":\"stopped\""));
    if (signal == SIGINT) {
      EXPECT_THAT(read_file(file("child")), HasSubstr("press again to end at once and lose the steps since step "));
    }
    const Result resumed =
        owt("train " + recipe + " --out " + run + " --workers 2 --resume auto --epochs 100000 --steps 100");
    // Fewer steps than it has already are done at once.
    EXPECT_EQ(resumed.code, 0) << resumed.err;
  }
}

}  // namespace
}  // namespace owt::cli_test
