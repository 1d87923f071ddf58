// The folders of a prepared data set (data/shard_index.h): which of their files belong to owt prepare, and locks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/system/files.h"

namespace owt {

// The files of a split other than its shards.
constexpr const char *kSettings = "prepare.json", *kDataset = "dataset.json", *kSkipped = "skipped.txt",
                     *kStatistics = "stats.json";
// The lines of a file; none if it is missing.
std::vector<std::string> lines_of(const std::string& path);

// A folder that no other process can hold while this object lives. It is created if it is missing. Throws Error if
// another process holds it. If nothing was written in it, the folder is removed at the end.
class HeldFolder {
 public:
  explicit HeldFolder(const std::string& dir);
  ~HeldFolder();

 private:
  std::string dir_;
  std::vector<std::string> made_;  // created folders, the innermost first
  bool made_lock_;
  int64_t entries_;  // number of entries besides the lock, when it was taken
  FileLock lock_;
};

// Whether the folder holds a split, or a part of one, that prepare_split() wrote.
bool is_prepared_split(const std::string& dir);
// Throws Error if `dir` holds a file that prepare_split() did not write; `dir` need not exist.
void check_split_folder(const std::string& dir);
// Removes a split that prepare_split() wrote, and nothing else. Throws the errors of check_split_folder() and
// HeldFolder before anything is removed.
void remove_split(const std::string& dir);

// The folder of the splits and of classes.txt, held while this object lives.
class DataSetFolder {
 public:
  explicit DataSetFolder(const std::string& dir);

  std::string classes_path() const;
  std::vector<std::string> classes() const;  // the lines of classes.txt; none if it is missing
  void write_classes(const std::vector<std::string>& lines) const;

 private:
  std::string dir_;
  HeldFolder held_;
};

}  // namespace owt
