#include "src/system/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "src/system/activity.h"
#include "src/system/check.h"
#include "src/system/kept_files.h"
#include "src/system/no_room.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

std::string reason() { return std::strerror(errno); }

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// The file that writing to `path` replaces.
std::string output_path(const std::string& path) {
  std::error_code code;
  const bool is_link = fs::is_symlink(path, code);
  const fs::path target = is_link ? fs::canonical(path, code) : fs::path(path);
  if (is_link && code) fail("cannot write ", path, ": the link leads nowhere: ", code.message(), "; remove it");
  const fs::file_status there = fs::status(target, code);
  if (fs::is_directory(there)) fail("cannot write ", path, ": it is a folder; name a file");
  if (fs::exists(there) && !fs::is_regular_file(there))
    fail("cannot write ", path, ": it is a device, a pipe or the like, which a file would replace; name a file");
  return target.string();
}

bool is_at(int file, const std::string& path) {
  struct stat opened {
  }, named{};
  return ::fstat(file, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

enum class Without { kContinue, kMakeItNew };  // locks

// Opens the file, empty and locked while it is open; -1 if another writer has it open.
int open_alone(const std::string& path, Without locks) {
  int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  const bool made = file >= 0;
  if (!made && errno == EEXIST) file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) fail_to_write(path, errno);
  const bool locked = ::flock(file, LOCK_EX | LOCK_NB) == 0, no_locks = !locked && errno != EWOULDBLOCK;
  const bool alone = locked || (no_locks && (made || locks == Without::kContinue));
  // The previous owner of the lock may have renamed or removed the file.
  if (alone && is_at(file, path) && ::ftruncate(file, 0) == 0) return file;
  ::close(file);
  return -1;
}

constexpr size_t kMostOfAStream = 64 << 20;  // bytes read from a pipe or a device

// File systems without fsync() report these errors.
bool synced(int file) { return ::fsync(file) == 0 || errno == EINVAL || errno == EROFS; }

}  // namespace

bool says_no_room(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

void fail_to_write(const std::string& path, int error, const std::string& hint) {
  const std::string why = concat("cannot write ", path, ": ", std::strerror(error), hint);
  if (says_no_room(error)) throw NoRoom(why);
  throw Error(why);
}

std::string read_file(const std::string& path) {
  const Waits waits(WaitsFor::kData);  // a dead disk may never return
  FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) fail("cannot read ", path, ": ", reason());
  std::string content;
  char buffer[1 << 16];
  struct stat status {};
  const bool may_have_no_end = ::fstat(fileno(file), &status) == 0 && !S_ISREG(status.st_mode);
  const auto endless = [&] { return may_have_no_end && content.size() > kMostOfAStream; };
  for (size_t got; !endless() && (got = std::fread(buffer, 1, sizeof buffer, file)) > 0; note_work())
    content.append(buffer, got);
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) fail("cannot read ", path, ": ", reason());
  if (endless()) fail(path, " is no regular file and does not end within ", kMostOfAStream >> 20, " MiB; name a file");
  return content;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = text.starts_with("\xEF\xBB\xBF") ? 3 : 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    if (!lines.back().empty() && lines.back().back() == '\r') lines.back().pop_back();
    begin = end + 1;
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::vector<std::string> text_lines(const std::string& path) { return split_lines(read_file(path)); }

FileWriter::FileWriter(const std::string& path) : FileWriter(path, open_alone(path, Without::kContinue)) {
  if (descriptor_ < 0)
    fail("cannot write ", path, ": another process is writing it; wait for it, or name another file");
}

FileWriter::FileWriter(const std::string& path, int descriptor) : path_(path), descriptor_(descriptor) {
  hash_ = XXH64_createState();
  XXH64_reset(static_cast<XXH64_state_t*>(hash_), 0);
}

FileWriter::~FileWriter() {
  XXH64_freeState(static_cast<XXH64_state_t*>(hash_));
  if (descriptor_ < 0) return;
  ::unlink(path_.c_str());
  ::close(descriptor_);
}

void FileWriter::write(const void* bytes, size_t count) {
  XXH64_update(static_cast<XXH64_state_t*>(hash_), bytes, count);
  const char* next = static_cast<const char*>(bytes);
  while (count > 0) {
    note_work();
    const ssize_t wrote = ::write(descriptor_, next, std::min<size_t>(count, 64 << 20));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail_to_write(path_, errno, "; free some space or choose another folder");
    next += wrote;
    count -= static_cast<size_t>(wrote);
  }
}

void FileWriter::sync() {
  if (!synced(descriptor_)) fail_to_write(path_, errno);
}

void FileWriter::close() {
  sync();
  release();
}

void FileWriter::release() {
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_to_write(path_, errno);
}

uint64_t FileWriter::checksum() const { return XXH64_digest(static_cast<XXH64_state_t*>(hash_)); }

void sync_folder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail("cannot open folder ", folder, ": ", reason());
  const int error = synced(descriptor) ? 0 : errno;
  ::close(descriptor);
  if (error != 0) fail_to_write(folder, error);
}

void write_file_atomically(const std::string& path, std::string_view content) {
  AtomicFileWriter file(path);
  file.write(content);
  file.close();
}

std::string write_keeping_old(const std::string& path, std::string_view content) {
  std::string kept;
  if (fs::exists(path)) {
    const std::string old = read_file(path);
    if (old == content) return "";
    int number = 1;
    do kept = concat(path, ".", number++);
    while (fs::exists(kept));
    write_file_atomically(kept, old);
  }
  try {
    write_file_atomically(path, content);
  } catch (...) {  // nothing was replaced
    if (!kept.empty()) ::unlink(kept.c_str());
    throw;
  }
  return kept;
}

void check_output(const std::string& path) {
  const std::string folder = folder_of(output_path(path));
  if (!writable_folder(folder))
    fail("cannot write ", path, ": ", folder, fs::is_directory(folder) ? " cannot be written to" : " is no folder",
         "; make it, or name another file");
}

AtomicFileWriter::AtomicFileWriter(const std::string& path) : path_(output_path(path)), beside_(beside(path_)) {}

FileWriter AtomicFileWriter::beside(const std::string& path) {
  constexpr int kMostWriters = 10'000;
  for (int writer = 1; writer <= kMostWriters; ++writer) {
    const std::string name = path + (writer == 1 ? "" : concat(".", writer)) + ".tmp";
    if (const int descriptor = open_alone(name, Without::kMakeItNew); descriptor >= 0)
      return FileWriter(name, descriptor);
  }
  fail("cannot write ", path, ": ", kMostWriters, " unfinished files beside it; remove ", path, ".*.tmp");
}

// The file is unlocked only after the rename: before it, another writer would take it for the remains of a crash.
void AtomicFileWriter::close() {
  beside_.sync();
  if (std::rename(beside_.path_.c_str(), path_.c_str()) != 0) fail_to_write(path_, errno);
  beside_.release();
  sync_folder(folder_of(path_));
}

uint64_t checksum_of(std::string_view bytes) { return XXH64(bytes.data(), bytes.size(), 0); }

uint64_t file_checksum(const std::string& path) {
  const Waits waits(WaitsFor::kData);
  FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) fail("cannot read ", path, ": ", reason());
  XXH64_state_t* state = XXH64_createState();
  XXH64_reset(state, 0);
  char buffer[1 << 16];
  for (size_t got; (got = std::fread(buffer, 1, sizeof buffer, file)) > 0; note_work())
    XXH64_update(state, buffer, got);
  const uint64_t sum = XXH64_digest(state);
  XXH64_freeState(state);
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) fail("cannot read ", path, ": ", reason());
  return sum;
}

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

bool writable_folder(const std::string& folder) {
  return std::filesystem::is_directory(folder) && ::access(folder.c_str(), W_OK | X_OK) == 0;
}

FileLock::FileLock(const std::string& path) : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  held_by_another_ = file_ >= 0 && flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

FileLock::~FileLock() {
  if (file_ >= 0) close(file_);
}

// Lines of /proc/locks (proc(5)) are "1: FLOCK  ADVISORY  WRITE 708 fe:00:2097 0 EOF"; the number before the offsets is
// the file's inode. Lines of processes that wait for a lock have "->" before the kind.
bool is_locked(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return false;
  const std::string wanted = ":" + std::to_string(facts.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, mode, access, process, place;
    words >> number >> kind >> mode >> access >> process >> place;
    if (kind == "FLOCK" && place.ends_with(wanted)) return true;
  }
  return false;
}

}  // namespace owt
