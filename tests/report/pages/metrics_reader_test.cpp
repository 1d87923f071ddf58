#include "src/report/pages/metrics_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "src/system/check.h"
#include "src/system/log.h"
#include "src/train/metrics.h"
#include "tests/support/temp_folder.h"

namespace owt::metrics_reader_test {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class MetricsReaderTest : public ::testing::Test {
 protected:
  void append(const std::string& text) const { std::ofstream(path_, std::ios::app) << text; }

  TempFolder folder_;
  std::string path_ = folder_.file("metrics.jsonl");
};

TEST_F(MetricsReaderTest, ReadsWhatBoundsAStepAndHowTheNewestProcessEnded) {
  MetricsLog log(path_);
  log.write(BottleneckRecord{64, "step 18.6 ms.", 2.5});
  log.write(EndRecord{790, "stopped", 9});
  MetricsReader reader(path_);
  EXPECT_TRUE(reader.read());
  EXPECT_EQ(reader.metrics().bottleneck, "step 18.6 ms.");
  EXPECT_EQ(reader.metrics().end, "stopped");
  EXPECT_EQ(reader.metrics().unread_lines, 0);
  log.write(StartRecord{.step = 790, .steps_per_epoch = 4});
  EXPECT_TRUE(reader.read());
  EXPECT_EQ(reader.metrics().end, "");
  EXPECT_EQ(reader.metrics().bottleneck, "step 18.6 ms.");
}

TEST_F(MetricsReaderTest, ReadsWhatIsWritten) {
  {
    MetricsLog log(path_);
    log.write(StartRecord{.step = 0, .epoch = 0, .steps_per_epoch = 4, .facts = {{"host", "a \"b\""}}});
    log.write(TrainRecord{.step = 1,
                          .loss = 2.5,
                          .top1 = 0.25,
                          .lr = 0.5,
                          .images_per_second = 100,
                          .data_wait_ms = 0.125,
                          .gradient_norm = 4.5,
                          .seconds = 36});
    log.write(WeightsRecord{4, 0, {{"w", 0.5, 0.25}, {"b", 2.0}}, 72});
    log.write(EvalRecord{.split = Split::kValidation,
                         .step = 4,
                         .loss = 1.5,
                         .top1 = 0.75,
                         .top5 = 0.875,
                         .images = 10000,
                         .ema = true,
                         .seconds = 72});
  }
  MetricsReader reader(path_);
  EXPECT_TRUE(reader.read());
  const Metrics& all = reader.metrics();
  EXPECT_EQ(all.unread_lines, 0);
  ASSERT_EQ(all.starts.size(), 1u);
  EXPECT_THAT(all.starts[0].facts, ElementsAre(Pair("host", "a \"b\"")));
  EXPECT_THAT(all.steps.step, ElementsAre(1));
  EXPECT_THAT(all.steps.epochs, ElementsAre(0.25));
  EXPECT_THAT(all.steps.hours, ElementsAre(0.01));
  EXPECT_THAT(all.steps.loss, ElementsAre(2.5));
  EXPECT_THAT(all.steps.top1, ElementsAre(0.25));
  EXPECT_THAT(all.steps.rate, ElementsAre(0.5));
  EXPECT_THAT(all.steps.images_per_second, ElementsAre(100));
  EXPECT_THAT(all.steps.data_wait_ms, ElementsAre(0.125));
  EXPECT_THAT(all.steps.gradient_norm, ElementsAre(4.5));
  ASSERT_EQ(all.evaluations.size(), 1u);
  const EvaluationLine& line = all.evaluations[0];
  EXPECT_EQ(line.split, "val");
  EXPECT_EQ(line.epochs, 1);
  EXPECT_EQ(line.hours, 0.02);
  EXPECT_EQ(line.loss, 1.5);
  EXPECT_EQ(line.top1, 0.75);
  EXPECT_EQ(line.top5, 0.875);
  EXPECT_EQ(line.images, 10000);
  EXPECT_TRUE(line.ema);
  ASSERT_EQ(all.weights.size(), 1u);
  ASSERT_EQ(all.weights[0].parameters.size(), 2u);
  EXPECT_EQ(all.weights[0].parameters[0].name, "w");
  EXPECT_EQ(all.weights[0].parameters[0].mean, 0.5);
  EXPECT_EQ(all.weights[0].parameters[0].change, 0.25);
  EXPECT_TRUE(std::isnan(all.weights[0].parameters[1].change));
}

std::vector<std::string> texts_of(const std::vector<WorldLine>& worlds) {
  std::vector<std::string> texts;
  for (const WorldLine& world : worlds)
    texts.push_back(format("{} after step {}, {} epochs, {:.2f} h: {}{}, {}", world.workers, world.step, world.epochs,
                           world.hours, world.of_start ? "start" : "", world.text, world.repeated));
  return texts;
}

TEST_F(MetricsReaderTest, ReadsTheNumberOfWorkersOfStartsAndOfChanges) {
  {
    MetricsLog log(path_);
    log.write(StartRecord{0, 0, 4, {{"workers", "16, processes"}}});
    log.write(TrainRecord{.step = 6, .seconds = 72});
    log.write(WorldRecord{6, 15, "rank 2 was lost", 3, 108});
    log.write(StartRecord{6, 1.5, 4, {{"host", "a"}}});
    log.write(TrainRecord{.step = 8, .seconds = 36});
    log.write(StartRecord{8, 2, 4, {{"workers", "2"}}});
  }
  MetricsReader reader(path_);
  reader.read();
  EXPECT_THAT(texts_of(reader.metrics().worlds), ElementsAre("16 after step 0, 0 epochs, 0.00 h: start, 0",
                                                             "15 after step 6, 1.5 epochs, 0.03 h: rank 2 was lost, 3",
                                                             "2 after step 8, 2 epochs, 0.04 h: start, 0"));
  EXPECT_EQ(reader.metrics().unread_lines, 0);
}

TEST_F(MetricsReaderTest, AChangeWithoutANumberOfWorkersIsNoRecordAndOtherKeysMayBeMissing) {
  for (const char* workers : {"-3", "0", "1e300", "null", "\"3\"", "[3]"})
    append(format("{{\"kind\":\"world\",\"step\":1,\"workers\":{}}}\n", workers));
  append("{\"kind\":\"world\",\"step\":1}\n{\"kind\":\"world\",\"workers\":2}\n");
  append("{\"kind\":\"start\",\"step\":0,\"facts\":{\"workers\":\"-1\"}}\n");
  append("{\"kind\":\"world\",\"step\":5,\"workers\":2,\"text\":[1],\"repeated\":-1}\n");
  append("{\"kind\":\"world\",\"step\":6,\"workers\":3}\n");
  MetricsReader reader(path_);
  reader.read();
  EXPECT_EQ(reader.metrics().unread_lines, 8);
  const std::vector<WorldLine>& worlds = reader.metrics().worlds;
  ASSERT_EQ(worlds.size(), 2u);
  EXPECT_EQ(worlds[0].text, "[1]");
  EXPECT_TRUE(std::isnan(worlds[0].repeated) && std::isnan(worlds[1].repeated));
  EXPECT_EQ(worlds[1].workers, 3);
}

// Such as an older version has written.
TEST_F(MetricsReaderTest, WithoutAStartEpochsAreThoseOfTheLinesAndTimesAreNone) {
  append(R"({"kind":"train","step":7,"epoch":2,"loss":2.5,"top1":0.5,"lr":0.1})"
         "\n");
  MetricsReader reader(path_), told(path_, 4);
  EXPECT_TRUE(reader.read() && told.read());
  EXPECT_THAT(reader.metrics().steps.epochs, ElementsAre(2));
  EXPECT_THAT(told.metrics().steps.epochs, ElementsAre(1.75));
  EXPECT_TRUE(std::isnan(reader.metrics().steps.hours[0]));
  EXPECT_TRUE(std::isnan(reader.metrics().steps.images_per_second[0]));
}

TEST_F(MetricsReaderTest, NullIsNoNumber) {
  MetricsLog(path_).write(TrainRecord{.step = 1, .loss = NAN});
  MetricsReader reader(path_);
  reader.read();
  EXPECT_TRUE(std::isnan(reader.metrics().steps.loss.at(0)));
}

TEST_F(MetricsReaderTest, LinesThatAreNoRecordsAreCountedAndLeftOut) {
  append(
      "nonsense\n\n{}\n[1]\n{\"kind\":\"train\"}\n{\"kind\":\"train\",\"step\":null}\n{\"kind\":\"other\",\"step\":1}"
      "\n");
  append("{\"kind\":\"train\",\"step\":1e400}\n{\"kind\":\"train\",\"step\":1,}\n" + std::string(5000, '[') + "\n");
  append("{\"kind\":\"train\",\"step\":1,\"loss\":\"high\"}\n{\"kind\": \"eval\", \"step\": 3, \"top1\": 0.5}\n");
  MetricsReader reader(path_);
  reader.read();
  EXPECT_EQ(reader.metrics().unread_lines, 10);
  EXPECT_EQ(reader.metrics().evaluations.size(), 1u);
  EXPECT_THAT(reader.metrics().steps.step, ElementsAre(1));
}

TEST_F(MetricsReaderTest, ALineWithoutItsEndIsReadWhenItHasOne) {
  append("{\"kind\":\"train\",\"step\":1}\n{\"kind\":\"train\",\"st");
  MetricsReader reader(path_);
  EXPECT_TRUE(reader.read());
  EXPECT_FALSE(reader.read());
  EXPECT_THAT(reader.metrics().steps.step, ElementsAre(1));
  append("ep\":2}\n");
  EXPECT_TRUE(reader.read());
  EXPECT_THAT(reader.metrics().steps.step, ElementsAre(1, 2));
  EXPECT_EQ(reader.metrics().unread_lines, 0);
}

TEST_F(MetricsReaderTest, LinesOfAnyLengthAreRead) {
  append("{\"kind\":\"start\",\"step\":0,\"facts\":{\"command\":\"" + std::string(10 << 20, 'x') + "\"}}\n");
  append("{\"kind\":\"train\",\"step\":1}\n");
  MetricsReader reader(path_);
  reader.read();
  ASSERT_EQ(reader.metrics().starts.size(), 1u);
  EXPECT_EQ(reader.metrics().starts[0].facts.at(0).second.size(), size_t{10} << 20);
  EXPECT_THAT(reader.metrics().steps.step, ElementsAre(1));
}

// The time between two processes is none of training.
TEST_F(MetricsReaderTest, TimesOfAResumedRunAddUp) {
  {
    MetricsLog log(path_);
    log.write(StartRecord{0, 0, 10});
    log.write(TrainRecord{.step = 1, .seconds = 36});
    log.write(TrainRecord{.step = 2, .seconds = 72});
    log.write(StartRecord{2, 0.2, 5});
    log.write(TrainRecord{.step = 3, .seconds = 36});
  }
  MetricsReader reader(path_);
  reader.read();
  EXPECT_THAT(reader.metrics().steps.hours, ElementsAre(0.01, 0.02, 0.03));
  EXPECT_THAT(reader.metrics().steps.epochs, ElementsAre(0.1, 0.2, 0.4));
}

TEST_F(MetricsReaderTest, AnEvaluationBeforeTheFirstStepOfAProcessTakesNoTimeBack) {
  {
    MetricsLog log(path_);
    log.write(StartRecord{0, 0, 10});
    log.write(TrainRecord{.step = 2, .seconds = 72});
    log.write(EvalRecord{.step = 2, .seconds = 0});
    log.write(StartRecord{2, 0.2, 10});
    log.write(TrainRecord{.step = 3, .seconds = 36});
  }
  MetricsReader reader(path_);
  reader.read();
  EXPECT_EQ(reader.metrics().evaluations.at(0).hours, 0.02);
  EXPECT_THAT(reader.metrics().steps.hours, ElementsAre(0.02, 0.03));
}

TEST_F(MetricsReaderTest, AnotherFileIsReadFromItsStart) {
  {
    MetricsLog log(path_);
    for (int64_t step = 1; step <= 5; ++step) log.write(TrainRecord{.step = step});
  }
  MetricsReader reader(path_);
  reader.read();
  drop_metrics_after(path_, 2, 2);
  MetricsLog(path_).write(TrainRecord{.step = 3});
  EXPECT_TRUE(reader.read());
  EXPECT_THAT(reader.metrics().steps.step, ElementsAre(1, 2, 3));
}

TEST_F(MetricsReaderTest, AMissingFileHasNoLines) {
  MetricsReader reader(path_);
  EXPECT_FALSE(reader.read());
  append("{\"kind\":\"train\",\"step\":1}\n");
  EXPECT_TRUE(reader.read());
}

TEST_F(MetricsReaderTest, AFileThatCannotBeReadIsAnError) {
  std::filesystem::create_directory(path_);
  EXPECT_THROW(MetricsReader(path_).read(), Error);
}

}  // namespace
}  // namespace owt::metrics_reader_test
