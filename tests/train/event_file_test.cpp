#include "src/files/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "src/train/metrics.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_folder.h"
#include "tests/support/whole_runs.h"

namespace owt::event_file_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

std::string bytes_of(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

uint64_t whole_at(const std::string& bytes, size_t at, size_t count) {
  uint64_t value = 0;
  for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes.at(at + i));
  return value;
}

// The fields of a message of protobuf, as bytes.
std::multimap<int, std::string> fields_of(const std::string& message) {
  std::multimap<int, std::string> fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.size()) {
    const uint64_t key = varint();
    const size_t before = at;
    uint64_t size = (key & 7) == 1 ? 8 : 4;
    if ((key & 7) == 2) size = varint();
    if ((key & 7) == 0) varint(), size = at - before, at = before;
    fields.emplace(static_cast<int>(key >> 3), message.substr(at, size));
    at += size;
  }
  return fields;
}

struct Point {
  double time;
  int64_t step;
  double value;
};

// What a file says: numbers and texts by their tags.
struct Events {
  std::map<std::string, std::vector<Point>> points;
  std::map<std::string, std::string> texts;
  std::vector<std::string> others;  // events without a summary

  std::vector<int64_t> steps(const std::string& tag) const {
    std::vector<int64_t> all;
    if (const auto found = points.find(tag); found != points.end())
      for (const Point& point : found->second) all.push_back(point.step);
    return all;
  }
  void take(const std::string& event) {
    const auto fields = fields_of(event);
    const auto summary = fields.find(5);
    if (summary == fields.end()) return others.push_back(event);
    const double time = std::bit_cast<double>(whole_at(fields.find(1)->second, 0, 8));
    int64_t step = 0, shift = 0;
    for (const char byte : fields.find(2)->second) step |= static_cast<int64_t>(byte & 0x7f) << shift, shift += 7;
    for (const auto& [unused, value] : fields_of(summary->second)) {
      const auto parts = fields_of(value);
      const std::string tag = parts.find(1)->second;
      if (parts.contains(8))
        texts[tag] = fields_of(parts.find(8)->second).find(8)->second;
      else
        points[tag].push_back(
            {time, step, std::bit_cast<float>(static_cast<uint32_t>(whole_at(parts.find(2)->second, 0, 4)))});
    }
  }
};

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (const std::string name = entry.path().filename(); name.starts_with("events.")) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

Events events_in(const std::string& folder) {
  Events events;
  for (const std::string& name : files_in(folder)) {
    const std::string bytes = read_file(folder + "/" + name);
    for (size_t at = 0; at < bytes.size();) {
      const auto size = whole_at(bytes, at, 8);
      EXPECT_EQ(bytes.substr(at, size + 16), event_record(bytes.substr(at + 12, size)));
      events.take(bytes.substr(at + 12, size));
      at += size + 16;
    }
  }
  return events;
}

class EventFileTest : public ::testing::Test {
 protected:
  std::unique_ptr<EventFile> file() {
    return std::make_unique<EventFile>(folder_.path(), metrics_, "[model]\n\nx = 1");
  }

  TempFolder folder_;
  std::string metrics_ = folder_.file("metrics.jsonl");
};

// The first values are from RFC 3720, the records from TensorBoard's own reader.
TEST(EventRecord, IsFramedAsTensorFlowDoes) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(event_record(""), bytes_of("000000000000000029039807d8ea82a2"));
  EXPECT_EQ(event_record(bytes_of("09000000000000f83f10ac021a0d627261696e2e4576656e743a32")),
            bytes_of("1b000000000000001a0d9e1309000000000000f83f10ac021a0d627261696e2e4576656e743a320a8dc5e4"));
}

// The bytes that TensorBoard's protobuf classes write for Event(wall_time=1700000000.5, step=300, summary=...).
TEST_F(EventFileTest, ALineIsAnEventByteForByte) {
  MetricsLog log(metrics_, file());
  log.write(StartRecord{0, 0, 10, {{"started", "2023-11-14 22:13:20 +0000"}}});
  EventFile again(folder_.path(), metrics_, "");
  const std::string second = folder_.file("events.out.tfevents.00000002.owt");
  const size_t size = read_file(second).size();
  again.take(R"({"kind":"train","step":300,"epoch":0,"loss":2.5,"top1":0.25,"lr":0.5,"seconds":0.5})");
  EXPECT_EQ(
      read_file(second).substr(size),
      bytes_of("4d000000000000003d63d4a60900002040fc54d94110ac022a3f0a0c0a0565706f636815000000000a110a0a6c6f73732f7"
               "47261696e15000020400a110a0a746f70312f747261696e150000803e0a090a026c72150000003fab418e6c"));
}

TEST_F(EventFileTest, EveryFigureOfTheMetricsHasATag) {
  MetricsLog log(metrics_, file());
  log.write(StartRecord{0, 0, 10, {{"host", "a|b"}, {"started", "2023-11-14 23:13:20 +0100"}}});
  log.write(TrainRecord{.step = 20,
                        .epoch = 1,
                        .loss = 2.5,
                        .top1 = 0.25,
                        .lr = 0.5,
                        .images_per_second = 100,
                        .data_wait_ms = 0.125,
                        .corrupt_records = 2,
                        .gradient_norm = 4,
                        .seconds = 3});
  log.write(WeightsRecord{30, 2, {{"conv1.weight", 0.5, 0.25}, {"b", 2.0}}, 4});
  log.write(EvalRecord{.step = 30, .epoch = 2, .loss = 1.5, .top1 = 0.75, .top5 = 0.875, .images = 10, .seconds = 5});
  log.write(EvalRecord{.split = Split::kValidation, .step = 31, .loss = 1, .ema = true, .seconds = 6});
  log.write(WorldRecord{31, 3, "rank 2 was lost", 7, 6});

  const Events events = events_in(folder_.path());
  std::map<std::string, double> values;
  for (const auto& [tag, points] : events.points) {
    ASSERT_EQ(points.size(), 1u) << tag;
    values[tag] = points[0].value;
    EXPECT_EQ(points[0].step, tag.ends_with("/validation") || tag == "workers"      ? 31
                              : tag.ends_with("/test") || tag.starts_with("weight") ? 30
                                                                                    : 20)
        << tag;
    EXPECT_EQ(points[0].time, 1700000000 + (tag.ends_with("/validation") || tag == "workers" ? 6
                                            : tag.ends_with("/test")                         ? 5
                                            : tag.starts_with("weight")                      ? 4
                                                                                             : 3))
        << tag;
  }
  EXPECT_THAT(
      values,
      ElementsAre(Pair("corrupt_records", 2), Pair("data_wait_ms", 0.125), Pair("epoch", 1), Pair("gradient_norm", 4),
                  Pair("images_per_second", 100), Pair("loss/test", 1.5), Pair("loss/train", 2.5),
                  Pair("loss/validation", 1), Pair("lr", 0.5), Pair("top1/test", 0.75), Pair("top1/train", 0.25),
                  Pair("top1/validation", 0), Pair("top5/test", 0.875), Pair("top5/validation", 0),
                  Pair("weight_change/conv1.weight", 0.25), Pair("weight_mean/b", 2),
                  Pair("weight_mean/conv1.weight", 0.5), Pair("weight_ratio/conv1.weight", 0.5), Pair("workers", 3)));
  EXPECT_THAT(events.texts, ElementsAre(Pair("recipe", "    [model]\n    \n    x = 1"),
                                        Pair("start", "    host: a|b\n    started: 2023-11-14 23:13:20 +0100"),
                                        Pair("world", "    rank 2 was lost")));
  EXPECT_EQ(events.others.size(), 2u);  // the version and the start of a session
}

TEST_F(EventFileTest, WhatIsNotFiniteIsNoNumber) {
  MetricsLog(metrics_, file()).write(TrainRecord{.step = 1, .loss = NAN, .lr = INFINITY});
  const Events events = events_in(folder_.path());
  EXPECT_TRUE(std::isnan(events.points.at("loss/train").at(0).value));
  EXPECT_TRUE(std::isnan(events.points.at("lr").at(0).value));
}

TEST_F(EventFileTest, ANewProcessBeginsAFileOfWhatTheMetricsHaveKept) {
  write_bytes(folder_.file("events.out.tfevents.123.host"), "another program's");
  {
    MetricsLog log(metrics_, file());
    log.write(StartRecord{0, 0, 10, {{"started", "2023-11-14 22:13:20 +0000"}}});
    for (int64_t step = 1; step <= 4; ++step)
      log.write(TrainRecord{.step = step, .seconds = static_cast<double>(step)});
  }
  drop_metrics_after(metrics_, 2, 0);
  MetricsLog log(metrics_, file());
  log.write(EvalRecord{.step = 2});  // before the first step
  log.write(StartRecord{2, 0.2, 10, {{"started", "2023-11-14 22:14:20 +0000"}}});
  log.write(TrainRecord{.step = 3, .seconds = 1});

  EXPECT_THAT(files_in(folder_.path()),
              ElementsAre("events.out.tfevents.00000001.owt", "events.out.tfevents.00000002.owt",
                          "events.out.tfevents.123.host"));
  EXPECT_EQ(fs::file_size(folder_.file("events.out.tfevents.00000001.owt")), 0u);
  fs::remove(folder_.file("events.out.tfevents.123.host"));
  const Events events = events_in(folder_.path());
  EXPECT_THAT(events.steps("loss/train"), ElementsAre(1, 2, 3));
  EXPECT_THAT(events.steps("loss/test"), ElementsAre(2));
  EXPECT_EQ(events.points.at("loss/train").at(1).time, 1700000002);
  EXPECT_EQ(events.points.at("loss/test").at(0).time, 1700000002);
  EXPECT_EQ(events.points.at("loss/train").at(2).time, 1700000061);
}

TEST_F(EventFileTest, ManyProcessesLeaveTwoFiles) {
  for (int process = 0; process < 12; ++process) file();
  EXPECT_THAT(files_in(folder_.path()),
              ElementsAre("events.out.tfevents.00000011.owt", "events.out.tfevents.00000012.owt"));
}

TEST_F(EventFileTest, LinesThatAnyoneMayHaveWrittenAreNoReasonToEnd) {
  write_bytes(metrics_,
              "[]\n{}\n{\"kind\":3,\"step\":1}\n{\"kind\":\"train\",\"step\":\"a\",\"loss\":{},\"facts\":3}\n"
              "{\"kind\":\"weights\",\"mean\":3}\n{\"kind\":\"weights\",\"mean\":{\"w\":\"x\"},\"change\":[]}\n"
              "{\"kind\":\"world\",\"workers\":\"x\",\"text\":{}}\n{\"kind\":\"start\",\"facts\":{\"started\":7}}\n{"
              "\"kind\":\"eval\",\"split\":7}\n{\"kind\":\"tr");
  file();
  EXPECT_THAT(events_in(folder_.path()).steps("loss/train"), IsEmpty());
}

TEST_F(EventFileTest, ALineThatIsNestedWithoutEndIsLeftOut) {
  write_bytes(metrics_, R"({"kind":"weights","step":1,"mean":{"a":1},"change":{"a":)" + nested(1'000'000) + "}}\n" +
                            R"({"kind":"train","step":2,"loss":2})" + "\n");
  file();
  EXPECT_THAT(events_in(folder_.path()).steps("loss/train"), ElementsAre(2));
}

TEST_F(EventFileTest, AnUnwritableFolderIsAnErrorAndAFullDiskNoneAsForTheMetrics) {
  EXPECT_THAT(message_of([&] { EventFile(folder_.file("none"), metrics_, ""); }),
              AllOf(HasSubstr("cannot write"), HasSubstr("choose another --out")));
  const std::unique_ptr<EventFile> events = file();
  ::testing::internal::CaptureStderr();
  {
    const SmallDisk disk(600);
    for (int step = 1; step < 99; ++step) events->take(format(R"({{"kind":"train","step":{},"loss":2}})", step));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), AllOf(HasSubstr("tfevents"), HasSubstr("until there is room")));
  events->take(R"({"kind":"train","step":99,"loss":2})");
  EXPECT_EQ(events_in(folder_.path()).steps("loss/train").size(), 99u);
}

class EventsOfRuns : public ::testing::Test, protected WholeRuns {};

TEST_F(EventsOfRuns, AResumedRunHasTheEventsOfAnUninterruptedOne) {
  const Overrides on = merged(kEveryStepLogged, {{"run.tensorboard", "true"}}), stopped{{"schedule.max_steps", "7"}};
  run("whole", on);
  run("part", merged(kEveryStepLogged, stopped));
  EXPECT_THAT(files_in(path("part")), IsEmpty());
  run("part", on, "auto");
  const Events whole = events_in(path("whole")), part = events_in(path("part"));
  EXPECT_EQ(whole.steps("loss/train").size(), 20u);
  EXPECT_EQ(whole.steps("top5/test").size(), 4u);
  for (const auto& [tag, points] : whole.points) {
    if (tag == "images_per_second" || tag == "data_wait_ms") continue;
    EXPECT_EQ(part.steps(tag).size() - (tag.starts_with("weight_") || tag.ends_with("/test") ? 1 : 0), points.size())
        << tag;  // the stopped one was evaluated at its end
  }
  const auto losses_of = [](const Events& events) {
    std::vector<double> all;
    for (const Point& point : events.points.at("loss/train")) all.push_back(point.value);
    return all;
  };
  EXPECT_EQ(losses_of(part), losses_of(whole));
  EXPECT_THAT(part.texts.at("recipe"), HasSubstr("tensorboard = true"));
}

}  // namespace
}  // namespace owt::event_file_test
