// Files: whole reads, and writes that are complete or not there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace owt {

std::string read_file(const std::string& path);  // throws Error naming the file and the system's reason
// Lines without their ends and a byte order mark; empty ones at the end do not count.
std::vector<std::string> text_lines(const std::string& path);  // without their ends; throws as read_file()
std::vector<std::string> split_lines(const std::string& text);

// Writes `path` so that readers and crashes see the old content or the new, never a part: writes path.tmp, syncs it,
// renames it, syncs the folder. Throws Error (disk full, not writable) and leaves the old file untouched. Of several
// writers of one path, in any processes, each writes whole and the last one's content stays: they take path.tmp,
// path.2.tmp and so on. What a process that crashed has left there the next one uses.
void write_file_atomically(const std::string& path, std::string_view content);

// Throws Error where write_file_atomically() could not write: no such folder, or what is there is no file. For outputs
// that are written after long work.
void check_output(const std::string& path);

// A file written in pieces and made durable by close(). Throws Error on a full disk, and where another writer is at the
// file; an unclosed file is removed.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* bytes, size_t count);
  void sync();
  void close();               // sync(), and no more is written
  uint64_t checksum() const;  // xxHash64 of all bytes so far

 private:
  friend class AtomicFileWriter;
  FileWriter(const std::string& path, int descriptor);
  void release();  // a file that is synced stays, whatever its name is now

  std::string path_;
  int descriptor_;  // locked as long as it is open, where the file system knows locks
  void* hash_ = nullptr;
};

// write_file_atomically() in pieces: close() puts the file in its place; without it nothing has changed. Where the path
// is a symbolic link, the file it leads to is written. Throws Error where something else than a file is there
// (/dev/null).
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
bool writable_folder(const std::string& folder);  // exists and a file can be made in it

// A file that one process holds at a time, made where it is missing; released with this object, and when the process
// ends. Where the file system knows no locks it holds nothing.
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

// Whether a process of this machine holds a FileLock on the file; asks without taking it for a moment, which would keep
// a process from it that begins just then.
bool is_locked(const std::string& path);

}  // namespace owt
