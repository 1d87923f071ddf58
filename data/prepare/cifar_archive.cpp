#include "data/prepare/cifar_archive.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <system_error>
#include <vector>

#include "data/cifar.h"
#include "data/prepare/tar.h"
#include "data/prepare/temporary_folder.h"
#include "src/system/check.h"
#include "src/system/files.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

// The archive being read; messages name its file.
class ArchiveReader {
 public:
  explicit ArchiveReader(const std::string& path) : path_(path), archive_(gzip_tar_reader()) {
    check(archive_read_open_filename(archive_.get(), path.c_str(), kBlock));
  }

  // The next entry, nullptr at the end.
  archive_entry* next() {
    archive_entry* entry = nullptr;
    const int result = archive_read_next_header(archive_.get(), &entry);
    if (result == ARCHIVE_EOF) return nullptr;
    check(result);
    // Skipped entries count too, because they are unpacked to find the next entry.
    bytes_ += std::max<int64_t>(archive_entry_size(entry), 0);
    if (bytes_ > kMostBytes) reject("unpacks to more than ", kMostBytes, " bytes, and CIFAR does not");
    return entry;
  }

  void write_entry(const fs::path& to) {
    FileWriter file(to.string());
    std::vector<char> buffer(kBlock);
    for (;;) {
      const la_ssize_t got = archive_read_data(archive_.get(), buffer.data(), buffer.size());
      if (got < 0) check(static_cast<int>(got));
      if (got == 0) break;
      file.write(buffer.data(), got);
    }
    file.close();
  }

  template <class... Parts>
  [[noreturn]] void reject(const Parts&... parts) const {
    fail(path_, ": ", parts..., "; download the archive again");
  }

 private:
  static constexpr size_t kBlock = 1 << 16;
  static constexpr uint64_t kMostBytes = uint64_t{1} << 28;  // the official archives: 184 and 185 million

  void check(int result) const {
    if (result >= ARCHIVE_WARN) return;
    const char* reason = archive_error_string(archive_.get());
    reject("cannot unpack it: ", reason ? reason : "unknown reason");
  }

  std::string path_;
  uint64_t bytes_ = 0;  // total of the entries so far
  std::unique_ptr<struct archive, int (*)(struct archive*)> archive_;
};

// The files of the official archives.
constexpr const char* kFiles[] = {
    "cifar-10-batches-bin/data_batch_1.bin",
    "cifar-10-batches-bin/data_batch_2.bin",
    "cifar-10-batches-bin/data_batch_3.bin",
    "cifar-10-batches-bin/data_batch_4.bin",
    "cifar-10-batches-bin/data_batch_5.bin",
    "cifar-10-batches-bin/test_batch.bin",
    "cifar-10-batches-bin/batches.meta.txt",
    "cifar-10-batches-bin/readme.html",
    "cifar-100-binary/train.bin",
    "cifar-100-binary/test.bin",
    "cifar-100-binary/fine_label_names.txt",
    "cifar-100-binary/coarse_label_names.txt",
};

bool is_of_cifar(const fs::path& path) {
  const std::string name = path.lexically_normal().generic_string();
  return std::find(std::begin(kFiles), std::end(kFiles), name) != std::end(kFiles);
}

bool is_safe(const fs::path& path) {
  if (path.empty() || path.is_absolute()) return false;
  for (const fs::path& part : path)
    if (part == "..") return false;
  return true;
}

void unpack(ArchiveReader& reader, const fs::path& into) {
  while (archive_entry* entry = reader.next()) {
    const char* name = archive_entry_pathname(entry);
    const fs::path path(name ? name : "");
    if (!is_safe(path)) reader.reject("entry '", path.string(), "' lies outside the folder to unpack into");
    const bool link = archive_entry_hardlink(entry) != nullptr;
    if (archive_entry_filetype(entry) == AE_IFDIR && !link) continue;  // folders are created for the files in them
    if (archive_entry_filetype(entry) != AE_IFREG || link)
      reader.reject("entry '", path.string(), "' is neither a file nor a folder");
    if (!is_of_cifar(path)) continue;
    const fs::path folder = (into / path).parent_path();
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) fail("cannot make folder ", folder.string(), ": ", error.message());
    reader.write_entry(into / path);
  }
}

struct ArchiveFolder {
  const char* folder;
  CifarKind kind;
};
constexpr ArchiveFolder kContents[] = {{"cifar-10-batches-bin", CifarKind::k10}, {"cifar-100-binary", CifarKind::k100}};

}  // namespace

std::string unpack_cifar_archive(const std::string& archive, const std::string& dir) {
  if (!fs::is_regular_file(archive))
    fail("no archive ", archive, "; https://www.cs.toronto.edu/~kriz/cifar.html has those of CIFAR");
  ArchiveReader reader(archive);
  const TemporaryFolder beside(dir);
  unpack(reader, beside.path());
  for (const ArchiveFolder& content : kContents) {
    const fs::path unpacked = fs::path(beside.path()) / content.folder, target = fs::path(dir) / content.folder;
    if (!fs::is_directory(unpacked)) continue;
    for (const Split split : {Split::kTrain, Split::kTest}) read_cifar(unpacked.string(), content.kind, split);
    if (fs::exists(target)) fail(target.string(), " exists already; remove it to unpack ", archive, " there");
    std::error_code error;
    fs::rename(unpacked, target, error);
    if (error) fail("cannot make ", target.string(), ": ", error.message());
    sync_folder(dir);
    return target.string();
  }
  reader.reject("holds neither ", kContents[0].folder, " nor ", kContents[1].folder);
}

}  // namespace owt
