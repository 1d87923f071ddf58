#include "src/report/pages/metrics_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "src/system/check.h"
#include "src/system/json_text.h"

namespace owt {
namespace {

using MetricsJson = nlohmann::ordered_json;

// An open file, closed by the destructor.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

// A training record as the program writes it: a flat object whose keys have no escapes. Reading a million of them takes
// a fifth of the time of a general JSON reader.
class FlatRecord {
 public:
  explicit FlatRecord(std::string_view line) : at_(line.data()), end_(line.data() + line.size()) {}

  // Calls take(key, number) for each number, NaN for null, and words(key, word) for each string. False: not such a
  // record.
  template <class Take, class Words>
  bool read(const Take& take, const Words& words) {
    if (!skip('{')) return false;
    for (;;) {
      std::string_view key, word;
      if (!quoted(key) || !skip(':')) return false;
      double value = NAN;
      if (at_ != end_ && *at_ == '"') {
        if (!quoted(word)) return false;
        words(key, word);
      } else if (number(value)) {
        take(key, value);
      } else {
        return false;
      }
      if (skip('}')) return at_ == end_;
      if (!skip(',')) return false;
    }
  }

 private:
  bool skip(char wanted) {
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }
  bool quoted(std::string_view& text) {
    if (!skip('"')) return false;
    const char* const begin = at_;
    while (at_ != end_ && *at_ != '"' && *at_ != '\\') ++at_;
    text = {begin, static_cast<size_t>(at_ - begin)};
    return skip('"');
  }
  bool number(double& value) {
    if (end_ - at_ >= 4 && std::memcmp(at_, "null", 4) == 0) {
      at_ += 4;
      return true;
    }
    const auto [stop, error] = std::from_chars(at_, end_, value);
    at_ = stop;
    return error == std::errc();
  }

  const char *at_, *end_;
};

double number_in(const MetricsJson& record, const char* key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_number() ? found->get<double>() : NAN;
}

std::vector<ParameterSize> sizes_in(const MetricsJson& record) {
  std::vector<ParameterSize> all;
  const auto mean = record.find("mean");
  if (mean == record.end() || !mean->is_object()) return all;
  const MetricsJson change = record.value("change", MetricsJson::object());
  for (const auto& [name, value] : mean->items())
    all.push_back({name, value.is_number() ? value.get<double>() : NAN, number_in(change, name.c_str())});
  return all;
}

std::string text_in(const MetricsJson& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// 0: it is no number of workers.
int64_t workers_in(double value) { return value >= 1 && value <= 1e9 ? static_cast<int64_t>(value) : 0; }

// The fact "workers" begins with the number (start_facts.h).
int64_t workers_in(const StartLine& start) {
  double workers = 0;
  for (const auto& [name, value] : start.facts)
    if (name == "workers") std::from_chars(value.data(), value.data() + value.size(), workers);
  return workers_in(workers);
}

int64_t count_of(double value) { return std::isfinite(value) ? static_cast<int64_t>(value) : 0; }

}  // namespace

bool MetricsReader::read() {
  const OpenFile file(path_);
  if (file.descriptor() < 0 && errno == ENOENT) return false;
  struct stat facts {};
  if (file.descriptor() < 0 || ::fstat(file.descriptor(), &facts) != 0)
    fail("cannot read ", path_, ": ", std::strerror(errno));
  changed_ = facts.st_mtime;
  const auto size = static_cast<uint64_t>(facts.st_size);
  const bool another = facts.st_ino != file_ || size < at_;
  if (another) metrics_ = {}, at_ = 0, seconds_before_ = seconds_ = 0, file_ = facts.st_ino;
  const uint64_t before = at_;
  std::string piece(std::min<uint64_t>(size - at_, 1 << 22), '\0');
  while (at_ < size) {
    const ssize_t got = ::pread(file.descriptor(), piece.data(), piece.size(), static_cast<off_t>(at_));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read ", path_, ": ", std::strerror(errno));
    const std::string_view text(piece.data(), static_cast<size_t>(got));
    size_t begin = 0;
    for (size_t end = 0; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1)
      take(text.substr(begin, end - begin));
    at_ += begin;
    if (begin > 0) continue;
    if (static_cast<uint64_t>(got) < piece.size() || at_ + piece.size() >= size) break;  // an incomplete line
    piece.resize(piece.size() * 2);
  }
  return another || at_ != before;
}

void MetricsReader::take(std::string_view line) {
  if (!take_flat(line)) take_other(line);
}

bool MetricsReader::take_flat(std::string_view line) {
  if (!line.starts_with(R"({"kind":"train",)")) return false;
  double step = NAN, epoch = NAN, seconds = NAN, loss = NAN, top1 = NAN, rate = NAN, speed = NAN, wait = NAN,
         norm = NAN;
  const auto take = [&](std::string_view key, double value) {
    if (key == "step") step = value;
    if (key == "epoch") epoch = value;
    if (key == "seconds") seconds = value;
    if (key == "loss") loss = value;
    if (key == "top1") top1 = value;
    if (key == "lr") rate = value;
    if (key == "images_per_second") speed = value;
    if (key == "data_wait_ms") wait = value;
    if (key == "gradient_norm") norm = value;
  };
  if (!FlatRecord(line).read(take, [](std::string_view, std::string_view) {}) || !std::isfinite(step)) return false;
  StepColumns& to = metrics_.steps;
  to.step.push_back(static_cast<int64_t>(step));
  to.epochs.push_back(epochs_at(to.step.back(), epoch));
  to.hours.push_back(hours_at(seconds));
  to.loss.push_back(loss), to.top1.push_back(top1), to.rate.push_back(rate);
  to.images_per_second.push_back(speed), to.data_wait_ms.push_back(wait), to.gradient_norm.push_back(norm);
  return true;
}

void MetricsReader::take_other(std::string_view line) {
  const auto record = json_or_discarded<MetricsJson>(line);
  const auto kind = record.is_object() ? record.find("kind") : record.end();
  if (!record.is_object() || kind == record.end() || !std::isfinite(number_in(record, "step"))) {
    ++metrics_.unread_lines;
    return;
  }
  const int64_t step = count_of(number_in(record, "step"));
  const double epochs = epochs_at(step, number_in(record, "epoch") + 1);
  if (*kind == "start") {
    StartLine start{step, number_in(record, "epoch"), number_in(record, "steps_per_epoch")};
    if (const auto facts = record.find("facts"); facts != record.end() && facts->is_object())
      for (const auto& [name, value] : facts->items()) start.facts.emplace_back(name, text_in(value));
    metrics_.starts.push_back(std::move(start));
    metrics_.end.clear();
    seconds_before_ = seconds_;
    take_world({step, epochs_at(step, NAN), hours_at(0), workers_in(metrics_.starts.back()), true});
  } else if (*kind == "eval") {
    EvaluationLine line_of{step, epochs, hours_at(number_in(record, "seconds"))};
    line_of.split = text_in(record.value("split", MetricsJson("")));
    line_of.loss = number_in(record, "loss"), line_of.top1 = number_in(record, "top1");
    line_of.top5 = number_in(record, "top5"), line_of.images = count_of(number_in(record, "images"));
    line_of.ema = record.contains("ema");
    metrics_.evaluations.push_back(std::move(line_of));
  } else if (*kind == "weights") {
    metrics_.weights.push_back({step, epochs, hours_at(number_in(record, "seconds")), sizes_in(record)});
  } else if (*kind == "world") {
    const double seconds = number_in(record, "seconds"), repeated = number_in(record, "repeated");
    take_world({step, epochs_at(step, NAN), hours_at(std::isfinite(seconds) ? seconds : 0),
                workers_in(number_in(record, "workers")), false, text_in(record.value("text", MetricsJson(""))),
                repeated >= 0 ? repeated : NAN});
  } else if (*kind == "bottleneck") {
    metrics_.bottleneck = text_in(record.value("text", MetricsJson("")));
  } else if (*kind == "end") {
    metrics_.end = text_in(record.value("state", MetricsJson("")));
  } else if (*kind != "simulation") {
    ++metrics_.unread_lines;
  }
}

void MetricsReader::take_world(const WorldLine& line) {
  if (line.workers > 0)
    metrics_.worlds.push_back(line);
  else if (!line.of_start)
    ++metrics_.unread_lines;
}

double MetricsReader::epochs_at(int64_t step, double epoch) const {
  const StartLine* const start = metrics_.starts.empty() ? nullptr : &metrics_.starts.back();
  if (start && start->steps_per_epoch > 0)
    return start->epoch + static_cast<double>(step - start->step) / start->steps_per_epoch;
  return steps_per_epoch_ > 0 ? static_cast<double>(step) / steps_per_epoch_ : epoch;
}

double MetricsReader::hours_at(double seconds) {
  if (!std::isfinite(seconds)) return NAN;
  // A resumed process may evaluate before its first step, and before its line of kind start.
  seconds_ = std::max(seconds_, seconds_before_ + seconds);
  return seconds_ / 3600;
}

}  // namespace owt
