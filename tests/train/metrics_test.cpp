#include "src/train/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/system/check.h"
#include "src/system/files.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"

namespace owt::metrics_test {
namespace {

using ::testing::HasSubstr;

class MetricsTest : public testing::Test {
 protected:
  TempFolder folder_;
  std::string path_ = folder_.file("metrics.jsonl");
};

TEST_F(MetricsTest, WritesOneLinePerRecordAtOnce) {
  MetricsLog log(path_);
  log.write(TrainRecord{
      .step = 1, .epoch = 0, .loss = 2.5, .top1 = 0.25, .lr = 0.5, .images_per_second = 100, .data_wait_ms = 0.125});
  log.write(EvalRecord{.step = 500, .epoch = 1, .loss = 1.5, .top1 = 0.75, .top5 = 0.875, .images = 10000});
  log.write(EvalRecord{.split = Split::kValidation, .step = 2});

  EXPECT_EQ(
      read_file(path_),
      R"({"kind":"train","step":1,"epoch":0,"loss":2.5,"top1":0.25,"lr":0.5,"images_per_second":100.0,"data_wait_ms":0.125,"seconds":0.0})"
      "\n"
      R"({"kind":"eval","split":"test","step":500,"epoch":1,"loss":1.5,"top1":0.75,"top5":0.875,"images":10000,"seconds":0.0})"
      "\n"
      R"({"kind":"eval","split":"val","step":2,"epoch":0,"loss":0.0,"top1":0.0,"top5":0.0,"images":0,"seconds":0.0})"
      "\n");
}

TEST_F(MetricsTest, WritesWhereAProcessBeganAndHowLargeWeightsAre) {
  MetricsLog log(path_);
  log.write(StartRecord{4, 1.5, 10, {{"host", "a\nb"}}});
  log.write(WeightsRecord{5, 1, {{"w", 0.5, 0.25}, {"b", 2.0}}, 3});
  log.write(WeightsRecord{5, 1, {{"b", 2.0}}, 3});
  EXPECT_EQ(read_file(path_),
            R"({"kind":"start","step":4,"epoch":1.5,"steps_per_epoch":10,"facts":{"host":"a\\x0ab"}})"
            "\n"
            R"({"kind":"weights","step":5,"epoch":1,"mean":{"w":0.5,"b":2.0},"change":{"w":0.25},"seconds":3.0})"
            "\n"
            R"({"kind":"weights","step":5,"epoch":1,"mean":{"b":2.0},"seconds":3.0})"
            "\n");
}

TEST_F(MetricsTest, WritesWhatBoundsAStepAndHowAProcessEnded) {
  MetricsLog log(path_);
  log.write(BottleneckRecord{64, "step 18.6 ms: 16 % `gradients`.", 2.5});
  log.write(EndRecord{790, "finished", 9});
  EXPECT_EQ(read_file(path_),
            R"({"kind":"bottleneck","step":64,"text":"step 18.6 ms: 16 % `gradients`.","seconds":2.5})"
            "\n"
            R"({"kind":"end","step":790,"state":"finished","seconds":9.0})"
            "\n");
}

TEST_F(MetricsTest, WritesHowTheWorkersChanged) {
  MetricsLog(path_).write(WorldRecord{120, 3, "rank 2 was lost:\n\"killed\"", 7, 9});
  EXPECT_EQ(
      read_file(path_),
      R"({"kind":"world","step":120,"workers":3,"text":"rank 2 was lost:\\x0a\"killed\"","repeated":7,"seconds":9.0})"
      "\n");
}

// A run that goes back to step 120 says so at once. A resume from there or later does not undo it.
TEST_F(MetricsTest, ChangesOfTheWorkersStayWhenARunResumesFromTheirStepOrALaterOne) {
  MetricsLog log(path_);
  for (const int64_t step : {120, 121}) log.write(WorldRecord{.step = step, .workers = 3});
  const std::string whole = read_file(path_), first = whole.substr(0, whole.find('\n') + 1);
  drop_metrics_after(path_, 121, 0);
  EXPECT_EQ(read_file(path_), whole);
  drop_metrics_after(path_, 120, 0);
  EXPECT_EQ(read_file(path_), first);
  drop_metrics_after(path_, 119, 0);
  EXPECT_EQ(read_file(path_), "");
}

TEST_F(MetricsTest, DamagedRecordsAreCountedOnceThereAreAny) {
  MetricsLog log(path_);
  for (int64_t step = 1; step <= 3; ++step) log.write(TrainRecord{.step = step, .corrupt_records = step - 1});
  const std::vector<std::string> lines = text_lines(path_);
  EXPECT_EQ(lines.at(0).find("corrupt_records"), std::string::npos);
  EXPECT_NE(lines.at(1).find(R"("corrupt_records":1)"), std::string::npos);
  EXPECT_NE(lines.at(2).find(R"("corrupt_records":2)"), std::string::npos);
}

TEST_F(MetricsTest, AppendsToWhatIsThere) {
  write_bytes(path_, "first\n");
  MetricsLog(path_).write(EvalRecord{});
  EXPECT_EQ(read_file(path_).find("first\n{\"kind\":\"eval\""), 0u);
}

TEST_F(MetricsTest, WritesNullForWhatIsNotFinite) {
  MetricsLog(path_).write(TrainRecord{.loss = NAN, .lr = INFINITY});
  EXPECT_THAT(read_file(path_),
              testing::AllOf(testing::HasSubstr(R"("loss":null)"), testing::HasSubstr(R"("lr":null)")));
}

TEST_F(MetricsTest, KeepsLinesUntilThereIsRoomAndReportsAnUnwritablePlace) {
  MetricsLog full(path_);
  {
    const SmallDisk disk(400);  // captured output is a file, too
    ::testing::internal::CaptureStderr();
    for (int64_t step = 1; step <= 6; ++step) full.write(TrainRecord{.step = step});
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, testing::HasSubstr("its lines wait until there is room"));
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
    EXPECT_FALSE(full.is_complete());
  }
  full.write(TrainRecord{.step = 7});
  EXPECT_TRUE(full.is_complete());
  const std::vector<std::string> lines = text_lines(path_);
  ASSERT_EQ(lines.size(), 7u);
  for (size_t i = 0; i < 7; ++i) EXPECT_THAT(lines[i], testing::HasSubstr(concat("\"step\":", i + 1)));
  EXPECT_THROW(MetricsLog(folder_.file("no/such/folder")), Error);
}

TEST_F(MetricsTest, DropsLaterStepsAndTornLinesBeforeARunResumes) {
  write_bytes(path_,
              "{\"kind\":\"train\",\"step\":1}\n"
              "{\"kind\":\"train\",\"step\":2}\n"
              "{\"kind\":\"eval\",\"step\":2}\n"
              "{\"kind\":\"train\",\"step\":3}\n"
              "{\"kind\":\"train\",\"st");

  drop_metrics_after(path_, 2, 2);

  EXPECT_EQ(read_file(path_),
            "{\"kind\":\"train\",\"step\":1}\n"
            "{\"kind\":\"train\",\"step\":2}\n"
            "{\"kind\":\"eval\",\"step\":2}\n");
}

TEST_F(MetricsTest, DropsAnEvaluationThatIsDoneAgainWhenTheRunResumes) {
  const std::string first = "{\"kind\":\"eval\",\"step\":1}\n", second = "{\"kind\":\"train\",\"step\":2}\n";
  write_bytes(path_, first + second + "{\"kind\":\"eval\",\"step\":2}\n");
  drop_metrics_after(path_, 2, 1);
  EXPECT_EQ(read_file(path_), first + second);
}

// They are measured again with it.
TEST_F(MetricsTest, DropsTheSizesOfWeightsWithTheirEvaluationAndKeepsStarts) {
  const std::string kept =
      "{\"kind\":\"start\",\"step\":0}\n{\"kind\":\"weights\",\"step\":1}\n{\"kind\":\"train\",\"step\":2}\n";
  write_bytes(path_, kept + "{\"kind\":\"weights\",\"step\":2}\n{\"kind\":\"start\",\"step\":3}\n");
  drop_metrics_after(path_, 2, 1);
  EXPECT_EQ(read_file(path_), kept);
}

TEST_F(MetricsTest, DropsALineThatIsNestedWithoutEnd) {
  const std::string first = "{\"kind\":\"train\",\"step\":1}\n";
  write_bytes(path_, first + R"({"kind":"weights","step":1,"change":)" + nested(1'000'000) + "}\n");
  drop_metrics_after(path_, 2, 2);
  EXPECT_EQ(read_file(path_), first);
}

TEST_F(MetricsTest, AStepThatIsNoCountNamesFileLineAndValueAndChangesNothing) {
  const std::string first = "{\"kind\":\"train\",\"step\":9}\n";
  const auto complaint_of = [&](const std::string& record) {
    write_bytes(path_, first + record + "\n");
    const std::string said = message_of([&] { drop_metrics_after(path_, 2, 2); });
    EXPECT_EQ(read_file(path_), first + record + "\n");
    return said;
  };
  EXPECT_THAT(complaint_of(R"({"kind":"train","step":-1})"),
              HasSubstr("metrics.jsonl:2: 'step' is -1, wanted a whole"));
  EXPECT_THAT(complaint_of(R"({"step":18446744073709551615})"),
              HasSubstr(":2: 'step' is 18446744073709551615, wanted"));
  EXPECT_THAT(complaint_of(R"({"step":1.5})"), HasSubstr(":2: 'step' is 1.5, wanted"));
  EXPECT_THAT(complaint_of(R"({"step":null})"), HasSubstr(":2: 'step' is null, wanted"));
  EXPECT_THAT(complaint_of(R"({"step":1,"loss":1e400})"), HasSubstr(":2: 'loss' is '1e400', which no number can hold"));
  EXPECT_THAT(complaint_of("{}"), HasSubstr(":2: there is no 'step', wanted a whole number from 0"));
}

TEST_F(MetricsTest, DropsNothingWhereThereIsNothing) {
  drop_metrics_after(path_, 2, 2);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace owt::metrics_test
