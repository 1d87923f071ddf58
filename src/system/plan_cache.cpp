#include "src/system/plan_cache.h"

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/log.h"

namespace owt {
namespace {

constexpr const char* kMagic = "owt-plan-1";

// A line of magic, checksum of what follows the line, bytes of the key, bytes of the text; then key and text.
std::string packed(const std::string& key, const std::string& text) {
  return concat(kMagic, " ", hex(checksum_of(key + text)), " ", key.size(), " ", text.size(), "\n", key, text);
}

struct CachedPlan {
  std::string key, text;
};

std::optional<CachedPlan> unpacked(const std::string& content) {
  const size_t line = content.find('\n');
  if (line == std::string::npos) return {};
  std::istringstream header(content.substr(0, line));
  std::string magic, checksum;
  size_t key_bytes = 0, text_bytes = 0;
  header >> magic >> checksum >> key_bytes >> text_bytes;
  const std::string body = content.substr(line + 1);
  if (!header || magic != kMagic || key_bytes > body.size() || text_bytes != body.size() - key_bytes ||
      checksum != hex(checksum_of(body)))
    return {};
  return CachedPlan{body.substr(0, key_bytes), body.substr(key_bytes)};
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

PlanCache& PlanCache::process() {
  static PlanCache cache(user_folder());
  return cache;
}

std::string PlanCache::user_folder() {
  if (const std::string own = variable("OWT_CACHE"); !own.empty()) return own;
  if (const std::string caches = variable("XDG_CACHE_HOME"); !caches.empty()) return caches + "/owt";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/owt";
  return "";
}

std::string PlanCache::path_of(const std::string& key) const { return folder_ + "/" + hex(checksum_of(key)) + ".plan"; }

std::optional<std::string> PlanCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  std::optional<std::string> text = folder_.empty() ? std::nullopt : read(key);
  if (text) known_[key] = *text;
  return text;
}

void PlanCache::store(const std::string& key, const std::string& text) {
  const std::lock_guard lock(mutex_);
  known_[key] = text;
  if (!folder_.empty()) write(key, text);
}

void PlanCache::store_for_this_process(const std::string& key, const std::string& text) {
  const std::lock_guard lock(mutex_);
  known_[key] = text;
}

std::map<std::string, std::string> PlanCache::known() const {
  const std::lock_guard lock(mutex_);
  return known_;
}

std::optional<std::string> PlanCache::read(const std::string& key) const {
  const std::string path = path_of(key);
  std::error_code unreadable;
  if (!std::filesystem::exists(path, unreadable)) return {};
  std::optional<CachedPlan> entry;
  try {
    entry = unpacked(read_file(path));
  } catch (const Error& error) {
    log_warn("{}; measuring anew", error.what());
    return {};
  }
  if (!entry || entry->key != key) {
    log_warn("{} is {}; measuring anew", path, entry ? "another choice's file" : "damaged");
    return {};
  }
  return entry->text;
}

void PlanCache::write(const std::string& key, const std::string& text) {
  std::error_code ignored;  // the write below reports the reason
  std::filesystem::create_directories(folder_, ignored);
  try {
    write_file_atomically(path_of(key), packed(key, text));
  } catch (const Error& error) {
    if (!warned_)
      log_warn("{}; measured choices are not kept, set OWT_CACHE to a folder that can be written", error.what());
    warned_ = true;
  }
}

}  // namespace owt
