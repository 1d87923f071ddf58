#include "src/train/start_facts.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>

#include "src/comm/launch.h"
#include "src/core/threads.h"
#include "src/plan/plan_bytes.h"
#include "src/predict/mirror_need.h"
#include "src/system/log.h"
#include "src/system/processor.h"
#include "src/system/version.h"

namespace owt {
namespace {

std::string quoted_for_shell(const std::string& word) {
  static constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string trimmed(const std::string& text) { return text.substr(std::min(text.find_first_not_of(' '), text.size())); }

std::string time_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm local{};
  char text[32];
  return localtime_r(&now, &local) && std::strftime(text, sizeof text, "%F %T %z", &local) ? text : "";
}

}  // namespace

std::string shell_words(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + quoted_for_shell(word);
  return line;
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return shell_words(words);
}

std::vector<std::pair<std::string, std::string>> facts_of_start(const Job& job) {
  const PlanRequest& request = job.plan.request;
  const std::string images = job.train ? std::to_string(job.train->size()) : "none";
  std::vector<std::pair<std::string, std::string>> facts{
      {"started", time_now()},
      {"version", program_version()},
      {"command", command_line()},
      {"host", host_name()},
      {"processor", trimmed(processor_name())},
      {"device", request.on.device == Device::kCpu ? "CPU" : "GPU"},
      {"precision", name_of(request.on.precision)},
      {"workers", concat(job.plan.ranks(), launch().several() ? ", processes" : "")},
      {"threads of each", std::to_string(team_size())},
      {"strategy", name_of(request.strategy)},
      {"images per step", std::to_string(request.step_rows)},
      {"seed", std::to_string(job.settings.run.seed)},
      {"training images", images},
      {"sent by each worker in a step", sent_text(job.plan, 3)}};
  if (request.mirror_every > 0) facts.emplace_back("mirror", mirror_text(job.plan));
  return facts;
}

}  // namespace owt
