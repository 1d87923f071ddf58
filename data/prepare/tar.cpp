#include "data/prepare/tar.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/system/check.h"

namespace owt {
namespace {

// A part of a file, which libarchive can read and skip.
class FilePart {
 public:
  FilePart(const std::string& path, uint64_t offset, uint64_t bytes)
      : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat status {};
    if (file_ < 0 || ::fstat(file_, &status) != 0) {
      const std::string reason = std::strerror(errno);
      if (file_ >= 0) ::close(file_);
      fail("cannot read ", path, ": ", reason);
    }
    const uint64_t all = status.st_size;
    at_ = std::min(offset, all);
    end_ = at_ + std::min(bytes, all - at_);
  }
  ~FilePart() { ::close(file_); }
  FilePart(const FilePart&) = delete;
  FilePart& operator=(const FilePart&) = delete;

  bool holds(uint64_t offset, uint64_t bytes) const { return offset <= end_ && bytes <= end_ - offset; }

  static la_ssize_t read(archive* reader, void* part, const void** buffer) {
    auto& self = *static_cast<FilePart*>(part);
    const ssize_t got = ::pread(self.file_, self.buffer_, std::min<uint64_t>(sizeof self.buffer_, self.end_ - self.at_),
                                static_cast<off_t>(self.at_));
    if (got < 0) {
      archive_set_error(reader, errno, "%s", std::strerror(errno));
      return -1;
    }
    self.at_ += got;
    *buffer = self.buffer_;
    return got;
  }
  static la_int64_t skip(archive*, void* part, la_int64_t bytes) {
    auto& self = *static_cast<FilePart*>(part);
    const uint64_t skipped = std::min<uint64_t>(bytes, self.end_ - self.at_);
    self.at_ += skipped;
    return static_cast<la_int64_t>(skipped);
  }

 private:
  int file_;
  uint64_t at_ = 0, end_ = 0;
  char buffer_[4096];  // little more than a header: contents are skipped
};

std::string reason_of(archive* reader) {
  const char* reason = archive_error_string(reader);
  return reason ? reason : "unknown reason";
}

bool ends_with_one(std::string_view name, const std::vector<std::string>& endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const std::string& e) { return name.ends_with(e); });
}

bool next_entry(archive* reader, archive_entry** entry, const std::string& path, const char* cure) {
  const int result = archive_read_next_header(reader, entry);
  if (result == ARCHIVE_EOF) return false;
  if (result < ARCHIVE_WARN) fail("cannot read ", path, " as a tar file: ", reason_of(reader), cure);
  return true;
}

std::string name_of(archive_entry* entry) {
  const char* name = archive_entry_pathname(entry);
  return name ? name : "";
}

using TarReader = std::unique_ptr<archive, int (*)(archive*)>;

}  // namespace

TarReader gzip_tar_reader() {
  TarReader reader(archive_read_new(), archive_read_free);
  archive_read_support_filter_gzip(reader.get());
  archive_read_support_format_tar(reader.get());
  return reader;
}

std::vector<TarMember> tar_members(const std::string& path, uint64_t offset, uint64_t bytes) {
  constexpr const char* kCure = "; it has to be uncompressed and whole: download it again";
  FilePart part(path, offset, bytes);
  const TarReader reader(archive_read_new(), archive_read_free);
  archive_read_support_format_tar(reader.get());
  archive_read_support_format_empty(reader.get());
  archive_read_set_read_callback(reader.get(), FilePart::read);
  archive_read_set_skip_callback(reader.get(), FilePart::skip);
  archive_read_set_callback_data(reader.get(), &part);
  if (archive_read_open1(reader.get()) < ARCHIVE_WARN)
    fail("cannot read ", path, " as a tar file: ", reason_of(reader.get()), kCure);
  std::vector<TarMember> members;
  archive_entry* entry = nullptr;
  while (next_entry(reader.get(), &entry, path, kCure)) {
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry)) continue;
    if (archive_entry_sparse_count(entry) > 0) fail(path, ": ", name_of(entry), " is sparse; pack it again without");
    // Only headers have been consumed so far: the content comes next.
    const TarMember member{name_of(entry), offset + archive_filter_bytes(reader.get(), 0),
                           static_cast<uint64_t>(archive_entry_size(entry))};
    if (!part.holds(member.offset, member.bytes))
      fail(path, ": ", member.name, " is cut off or its size is wrong", kCure);
    members.push_back(member);
  }
  return members;
}

std::vector<std::pair<std::string, std::string>> unpacked_members(const std::string& path,
                                                                  const std::vector<std::string>& endings,
                                                                  uint64_t most) {
  constexpr const char* kCure = "; download it again";
  constexpr size_t kBlock = 1 << 16;
  const TarReader reader = gzip_tar_reader();
  if (archive_read_open_filename(reader.get(), path.c_str(), kBlock) < ARCHIVE_WARN)
    fail("cannot read ", path, ": ", reason_of(reader.get()), kCure);
  std::vector<std::pair<std::string, std::string>> members;
  uint64_t bytes = 0;  // total of all members
  archive_entry* entry = nullptr;
  while (next_entry(reader.get(), &entry, path, kCure)) {
    if (!ends_with_one(name_of(entry), endings)) continue;
    std::string content;
    char block[kBlock];
    for (la_ssize_t got; (got = archive_read_data(reader.get(), block, sizeof block)) != 0;) {
      if (got < 0) fail("cannot read ", path, ": ", reason_of(reader.get()), kCure);
      content.append(block, got);
      bytes += got;
      if (bytes > most) fail(path, ": ", name_of(entry), " unpacks to more than ", most, " bytes", kCure);
    }
    members.emplace_back(name_of(entry), std::move(content));
  }
  return members;
}

TarWriter::TarWriter(const std::string& path)
    : file_(path), path_(path), archive_(archive_write_new(), archive_write_free) {
  check(archive_write_set_format_ustar(archive_.get()));
  // On_write() gets every byte at once, so that offsets are known.
  check(archive_write_set_bytes_per_block(archive_.get(), 0));
  check(archive_write_open(
      archive_.get(), this, nullptr,
      [](archive* a, void* self, const void* data, size_t n) -> la_ssize_t { return on_write(a, self, data, n); },
      nullptr));
}

TarWriter::~TarWriter() = default;

long long TarWriter::on_write(archive*, void* writer, const void* bytes, size_t count) {
  auto& self = *static_cast<TarWriter*>(writer);
  try {
    self.buffer_.append(static_cast<const char*>(bytes), count);
    self.bytes_ += count;
    if (self.buffer_.size() >= size_t{1} << 20) self.flush();
    return static_cast<long long>(count);
  } catch (...) {  // exceptions must not pass through libarchive
    self.error_ = std::current_exception();
    return -1;
  }
}

void TarWriter::flush() {
  file_.write(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void TarWriter::check(long long result) {
  if (error_) std::rethrow_exception(error_);
  if (result < ARCHIVE_OK) fail("cannot write ", path_, ": ", reason_of(archive_.get()));
}

uint64_t TarWriter::add(const std::string& name, std::string_view content) {
  const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(), archive_entry_free);
  archive_entry_set_pathname(entry.get(), name.c_str());
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  archive_entry_set_perm(entry.get(), 0644);
  archive_entry_set_mtime(entry.get(), 0, 0);
  archive_entry_set_size(entry.get(), static_cast<la_int64_t>(content.size()));
  check(archive_write_header(archive_.get(), entry.get()));
  const uint64_t offset = bytes_;
  check(archive_write_data(archive_.get(), content.data(), content.size()));
  check(archive_write_finish_entry(archive_.get()));
  return offset;
}

uint64_t TarWriter::close() {
  check(archive_write_close(archive_.get()));
  flush();
  file_.close();
  return bytes_;
}

}  // namespace owt
