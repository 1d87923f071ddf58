#include "src/files/event_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "src/system/check.h"
#include "src/system/json_text.h"
#include "src/system/log.h"

namespace owt {
namespace {

namespace fs = std::filesystem;
using EventJson = nlohmann::ordered_json;

std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>((value >> (8 * i)) & 0xff);
  return text;
}

// A protobuf message (protobuf.dev, "Encoding"), field by field.
class ProtoMessage {
 public:
  ProtoMessage& whole(int field, uint64_t value) { return key(field, 0).varint(value); }
  ProtoMessage& f64(int field, double value) {
    return key(field, 1).raw(little_endian(std::bit_cast<uint64_t>(value), sizeof value));
  }
  ProtoMessage& f32(int field, double value) {
    const auto single = static_cast<float>(value);
    return key(field, 5).raw(little_endian(std::bit_cast<uint32_t>(single), sizeof single));
  }
  ProtoMessage& bytes(int field, std::string_view value) { return key(field, 2).varint(value.size()).raw(value); }
  ProtoMessage& message(int field, const ProtoMessage& value) { return bytes(field, value.text_); }
  const std::string& text() const { return text_; }

 private:
  ProtoMessage& key(int field, int wire_type) { return varint(static_cast<uint64_t>(field << 3 | wire_type)); }
  ProtoMessage& varint(uint64_t value) {
    for (; value > 0x7f; value >>= 7) text_ += static_cast<char>((value & 0x7f) | 0x80);
    text_ += static_cast<char>(value);
    return *this;
  }
  ProtoMessage& raw(std::string_view value) {
    text_ += value;
    return *this;
  }

  std::string text_;
};

ProtoMessage event_at(double time, int64_t step) {
  return ProtoMessage().f64(1, time).whole(2, static_cast<uint64_t>(step));
}

ProtoMessage scalar(const std::string& tag, double value) { return ProtoMessage().bytes(1, tag).f32(2, value); }

// A tensor of one string for the plug-in "text". It reads Markdown, which does not change lines that begin with four
// blanks.
ProtoMessage text_value(const std::string& tag, const std::string& text) {
  constexpr int kString = 7, kTensors = 2;  // DataType, DataClass
  std::string indented = "    ";
  for (const char c : text) indented += c == '\n' ? "\n    " : std::string(1, c);
  const ProtoMessage plugin = ProtoMessage().message(1, ProtoMessage().bytes(1, "text")).whole(4, kTensors);
  return ProtoMessage()
      .bytes(1, tag)
      .message(8, ProtoMessage().whole(1, kString).bytes(2, "").bytes(8, indented))
      .message(9, plugin);
}

const EventJson& value_in(const EventJson& record, const char* key) {
  static const EventJson none;
  const auto found = record.find(key);
  return found == record.end() ? none : *found;
}

// Values that are not finite are null in JSON.
double number_of(const EventJson& value) { return value.is_number() ? value.get<double>() : NAN; }
bool may_be_number(const EventJson& value) { return value.is_number() || value.is_null(); }
double finite_or_0(const EventJson& value) { return value.is_number() ? value.get<double>() : 0; }

std::string split_of(const EventJson& record) {
  const EventJson& split = value_in(record, "split");
  return split == "val" ? "validation" : split.is_string() ? split.get<std::string>() : "";
}

// Values of several splits have the split after their name: TensorBoard shows them side by side.
std::vector<ProtoMessage> values_of_step(const EventJson& record) {
  std::vector<ProtoMessage> values;
  for (const auto& [key, value] : record.items()) {
    if (!may_be_number(value) || key == "step" || key == "seconds") continue;
    values.push_back(scalar(key == "loss" || key == "top1" ? key + "/train" : key, number_of(value)));
  }
  return values;
}

std::vector<ProtoMessage> values_of_evaluation(const EventJson& record) {
  std::vector<ProtoMessage> values;
  for (const char* key : {"loss", "top1", "top5"})
    values.push_back(scalar(concat(key, "/", split_of(record)), number_of(value_in(record, key))));
  return values;
}

std::vector<ProtoMessage> values_of_weights(const EventJson& record) {
  std::vector<ProtoMessage> values;
  const EventJson &means = value_in(record, "mean"), &changes = value_in(record, "change");
  if (!means.is_object()) return values;
  for (const auto& [name, mean] : means.items()) {
    values.push_back(scalar("weight_mean/" + name, number_of(mean)));
    if (!changes.is_object()) continue;
    const EventJson& change = value_in(changes, name.c_str());
    if (!change.is_number()) continue;
    values.push_back(scalar("weight_change/" + name, number_of(change)));
    values.push_back(scalar("weight_ratio/" + name, number_of(change) / number_of(mean)));
  }
  return values;
}

std::vector<ProtoMessage> values_of_start(const EventJson& record) {
  std::string lines;
  const EventJson& facts = value_in(record, "facts");
  if (facts.is_object())
    for (const auto& [name, value] : facts.items())
      if (value.is_string()) lines += concat(lines.empty() ? "" : "\n", name, ": ", value.get<std::string>());
  return {text_value("start", lines)};
}

std::vector<ProtoMessage> values_of_world(const EventJson& record) {
  const EventJson& text = value_in(record, "text");
  return {scalar("workers", number_of(value_in(record, "workers"))),
          text_value("world", text.is_string() ? text.get<std::string>() : "")};
}

std::vector<ProtoMessage> values_of(const EventJson& record) {
  const EventJson& kind = value_in(record, "kind");
  return kind == "train"     ? values_of_step(record)
         : kind == "eval"    ? values_of_evaluation(record)
         : kind == "weights" ? values_of_weights(record)
         : kind == "world"   ? values_of_world(record)
         : kind == "start"   ? values_of_start(record)
                             : std::vector<ProtoMessage>();
}

std::string summary_record(double time, int64_t step, const std::vector<ProtoMessage>& values) {
  ProtoMessage summary;
  for (const ProtoMessage& value : values) summary.message(1, value);
  return event_record(event_at(time, step).message(5, summary).text());
}

// Parses the time in the start facts (start_facts.cpp) to seconds since 1970; nothing if it is invalid.
std::optional<double> seconds_of(const EventJson& started) {
  std::tm time{};
  if (!started.is_string() || !strptime(started.get<std::string>().c_str(), "%F %T %z", &time)) return {};
  const long east = time.tm_gmtoff;
  return static_cast<double>(timegm(&time) - east);
}

double system_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

constexpr std::string_view kEventsBegin = "events.out.tfevents.", kEventsEnd = ".owt";
constexpr size_t kEventBytesAtOnce = 1 << 20;

// The number in the name of such a file; 0: another file.
int number_in_name(const std::string& name) {
  int number = 0;
  if (!name.starts_with(kEventsBegin) || !name.ends_with(kEventsEnd) ||
      name.size() <= kEventsBegin.size() + kEventsEnd.size())
    return 0;
  for (const char c : name.substr(kEventsBegin.size(), name.size() - kEventsBegin.size() - kEventsEnd.size())) {
    if (c < '0' || c > '9' || number > 99'999'999) return 0;
    number = 10 * number + (c - '0');
  }
  return number;
}

// In the order in which TensorBoard reads them, one after the other.
std::vector<fs::path> event_files(const std::string& folder) {
  std::vector<fs::path> found;
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(folder, unreadable))
    if (number_in_name(entry.path().filename().string()) > 0) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

std::string next_path(const std::string& folder) {
  const std::vector<fs::path> before = event_files(folder);
  const int last = before.empty() ? 0 : number_in_name(before.back().filename().string());
  return (fs::path(folder) / format("{}{:08}{}", kEventsBegin, last + 1, kEventsEnd)).string();
}

// A TensorBoard that is reading the latest file would not get past it if it were missing, so it is emptied instead.
void drop_before_newest(const std::vector<fs::path>& files) {
  for (size_t i = 0; i + 1 < files.size(); ++i)
    if (i + 2 < files.size())
      fs::remove(files[i]);
    else
      fs::resize_file(files[i], 0);
}

constexpr std::array<uint32_t, 256> kCrcOfByte = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    table[byte] = crc;
  }
  return table;
}();

// "Masked", as TensorFlow calls it, since CRCs of data that contains CRCs are weak.
std::string masked_crc(std::string_view bytes) {
  return little_endian(std::rotr(crc32c(bytes), 15) + 0xa282ead8, sizeof(uint32_t));
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = crc >> 8 ^ kCrcOfByte[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~crc;
}

std::string event_record(std::string_view event) {
  const std::string length = little_endian(event.size(), sizeof(uint64_t));
  return concat(length, masked_crc(length), event, masked_crc(event));
}

// When TensorBoard reads several sessions, each later one revokes earlier values from its first step on.
EventFile::EventFile(const std::string& folder, const std::string& metrics, const std::string& recipe)
    : file_(next_path(folder)) {
  constexpr int kStart = 1;  // SessionLog.SessionStatus
  const double now = system_seconds();
  std::string records = event_record(event_at(now, 0).bytes(3, "brain.Event:2").text());
  records += event_record(event_at(now, 0).message(7, ProtoMessage().whole(1, kStart)).text());
  records += summary_record(now, 0, {text_value("recipe", recipe)});
  std::ifstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    records += records_of(line);
    if (records.size() < kEventBytesAtOnce) continue;
    file_.append(records);
    records.clear();
  }
  file_.append(records);
  drop_before_newest(event_files(folder));
}

void EventFile::take(const std::string& line) { file_.append(records_of(line)); }

std::string EventFile::records_of(const std::string& line) {
  const EventJson record = json_or_discarded<EventJson>(line);
  if (!record.is_object()) return "";
  began_ = seconds_of(value_in(value_in(record, "facts"), "started")).value_or(began_);
  newest_ = std::max(newest_, began_ + finite_or_0(value_in(record, "seconds")));
  const std::vector<ProtoMessage> values = values_of(record);
  return values.empty() ? ""
                        : summary_record(newest_, static_cast<int64_t>(finite_or_0(value_in(record, "step"))), values);
}

}  // namespace owt
