#include "data/prepare/split_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "src/system/check.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = "prepare.lock";

// "000012.tar", or "000012.tar.tmp" while it is written.
bool is_ours(std::string name) {
  if (name.ends_with(".tmp")) name.resize(name.size() - 4);
  for (const char* known : {kSettings, kDataset, kSkipped, kLock, kStatistics})
    if (name == known) return true;
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  const std::string ending = name.substr(digits);
  return digits >= 6 && (ending == ".tar" || ending == ".index" || ending == ".skipped");
}

std::string path_in(const std::string& dir, const std::string& name) { return (fs::path(dir) / name).string(); }

std::string lock_in(const std::string& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) fail("cannot make folder ", dir, ": ", error.message());
  return path_in(dir, kLock);
}

// The folder and its parents that do not exist yet, the innermost first.
std::vector<std::string> missing_folders(const std::string& dir) {
  std::vector<std::string> missing;
  std::error_code error;
  for (fs::path folder = fs::absolute(dir, error).lexically_normal() / ""; folder.has_relative_path();) {
    folder = folder.parent_path();
    if (fs::exists(folder, error)) break;
    missing.push_back(folder.string());
  }
  return missing;
}

int64_t entries_beside_lock(const std::string& dir) {
  int64_t entries = 0;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error))
    entries += at->path().filename() == kLock ? 0 : 1;
  return entries;
}

}  // namespace

HeldFolder::HeldFolder(const std::string& dir)
    : dir_(dir),
      made_(missing_folders(dir)),
      made_lock_(!fs::exists(path_in(dir, kLock))),
      entries_(entries_beside_lock(dir)),
      lock_(lock_in(dir)) {
  if (lock_.held_by_another()) fail("another process prepares ", dir, " at this moment; wait for it");
}

// The lock is still held, so that no other process takes the file that is removed.
HeldFolder::~HeldFolder() {
  if (!made_lock_ || entries_beside_lock(dir_) != entries_) return;
  std::error_code ignored;
  fs::remove(path_in(dir_, kLock), ignored);
  for (const std::string& folder : made_) fs::remove(folder, ignored);  // removed only if it is empty
}

bool is_prepared_split(const std::string& dir) { return fs::exists(path_in(dir, kSettings)); }

// The settings are written first and removed last. Without them only the settings and the lock can be owt's.
void check_split_folder(const std::string& dir) try {
  const bool settings = is_prepared_split(dir);
  if (!fs::exists(dir)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (settings ? !is_ours(name) : name != kLock && name != std::string(kSettings) + ".tmp")
      fail(dir, " holds ", name, ", which is no part of a prepared data set",
           settings ? "" : " that owt prepare began here", "; choose another folder");
  }
} catch (const fs::filesystem_error& e) {
  fail("cannot prepare ", dir, ": ", e.what());
}

void remove_split(const std::string& dir) try {
  check_split_folder(dir);
  if (!is_prepared_split(dir)) return;
  const HeldFolder held(dir);
  fs::remove(path_in(dir, kDataset));
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (name != kLock && name != kSettings) files.push_back(entry.path());
  }
  for (const fs::path& file : files) fs::remove(file);
  sync_folder(dir);
  fs::remove(path_in(dir, kSettings));
} catch (const fs::filesystem_error& e) {
  fail("cannot remove what is prepared in ", dir, ": ", e.what());
}

std::vector<std::string> lines_of(const std::string& path) {
  return fs::exists(path) ? text_lines(path) : std::vector<std::string>();
}

DataSetFolder::DataSetFolder(const std::string& dir) : dir_(dir), held_(dir) {}

std::string DataSetFolder::classes_path() const { return path_in(dir_, "classes.txt"); }

std::vector<std::string> DataSetFolder::classes() const { return lines_of(classes_path()); }

void DataSetFolder::write_classes(const std::vector<std::string>& lines) const {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  write_file_atomically(classes_path(), text);
}

}  // namespace owt
