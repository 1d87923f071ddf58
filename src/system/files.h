// Files: reads of whole files, and atomic writes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace owt {

std::string read_file(const std::string& path);  // throws Error naming the file and the system's reason
// Lines without their ends and without a byte order mark. Empty lines at the end do not count.
std::vector<std::string> text_lines(const std::string& path);  // throws as read_file()
std::vector<std::string> split_lines(const std::string& text);

// Writes `path` atomically: readers, and programs after a crash, see the old content or the new one. Writes path.tmp,
// syncs it, renames it and syncs the folder. Throws Error (disk full, not writable) and leaves the old file untouched.
// Several processes may write one path: each writes a whole file (path.tmp, path.2.tmp, ...), and the last one's
// content stays. A temporary file that a crashed process left is reused.
void write_file_atomically(const std::string& path, std::string_view content);

// Throws Error if write_file_atomically() could not write: the folder does not exist, or `path` is not a regular file.
// For outputs that are written after long work.
void check_output(const std::string& path);

// A file that is written in pieces and made durable by close(). Throws Error if the disk is full or another writer has
// the file open. A file that was not closed is removed.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* bytes, size_t count);
  void sync();
  void close();               // sync(), and ends writing
  uint64_t checksum() const;  // xxHash64 of all bytes so far

 private:
  friend class AtomicFileWriter;
  FileWriter(const std::string& path, int descriptor);
  void release();  // keeps a synced file, whatever its current name

  std::string path_;
  int descriptor_;  // locked while it is open, if the file system has locks
  void* hash_ = nullptr;
};

// write_file_atomically() in pieces: close() puts the file in its place; without close() nothing changes. If the path
// is a symbolic link, its target is written. Throws Error if the path exists and is not a regular file (/dev/null).
class AtomicFileWriter {
 public:
  explicit AtomicFileWriter(const std::string& path);

  void write(const void* bytes, size_t count) { beside_.write(bytes, count); }
  void write(std::string_view text) { write(text.data(), text.size()); }
  void close();

 private:
  static FileWriter beside(const std::string& path);

  std::string path_;
  FileWriter beside_;
};

void sync_folder(const std::string& folder);      // throws Error
uint64_t checksum_of(std::string_view bytes);     // xxHash64
uint64_t file_checksum(const std::string& path);  // xxHash64
std::string hex(uint64_t value);                  // 16 digits
bool writable_folder(const std::string& folder);  // it exists, and a file can be created in it

// A lock on a file, held by one process at a time. The file is created if it is missing. The lock is released with this
// object and when the process ends. It has no effect if the file system has no locks.
class FileLock {
 public:
  explicit FileLock(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool held_by_another() const { return held_by_another_; }

 private:
  int file_ = -1;
  bool held_by_another_ = false;
};

// Whether a process of this machine holds a FileLock on the file. It does not take the lock, not even briefly, because
// that could keep a process that starts at this moment from getting it.
bool is_locked(const std::string& path);

}  // namespace owt
