#include "data/cifar.h"

#include <filesystem>

#include "data/memory_dataset.h"
#include "data/other_data.h"
#include "data/pixel_ops.h"
#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/log.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSide = 32, kChannels = 3, kPlane = kSide * kSide, kPixels = kPlane * kChannels;
constexpr int kOfficialFiles = 5;  // CIFAR-10's training split

struct Format {
  const char* title;
  const char* folder;
  int classes;
  int64_t label_bytes;  // the last one is the label
  const char* train;    // the first training file
  const char* test;
  const char* names;
  const char* cure;

  int64_t record() const { return label_bytes + kPixels; }
};

constexpr Format kCifar10{"CIFAR-10",
                          "cifar-10-batches-bin",
                          10,
                          1,
                          "data_batch_1.bin",
                          "test_batch.bin",
                          "batches.meta.txt",
                          "get cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it "
                          "with owt prepare cifar, or both with tools/fetch_cifar10.sh; or make a stand-in with owt "
                          "prepare synthetic"};
constexpr Format kCifar100{"CIFAR-100",
                           "cifar-100-binary",
                           100,
                           2,
                           "train.bin",
                           "test.bin",
                           "fine_label_names.txt",
                           "get cifar-100-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it "
                           "with owt prepare cifar"};

const Format& format_of(CifarKind kind) { return kind == CifarKind::k10 ? kCifar10 : kCifar100; }

fs::path find_folder(const std::string& dir, const Format& format) {
  const fs::path inner = fs::path(dir) / format.folder;
  for (const fs::path& folder : {fs::path(dir), inner})
    if (fs::exists(folder / format.train) || fs::exists(folder / format.test)) return folder;
  if (const std::string other = other_data(dir); !other.empty()) fail("no ", format.title, " in ", dir, ": ", other);
  fail("no ", format.title, " in ", dir, fs::is_directory(dir) ? "" : " (there is no such folder)", ": looked for ",
       format.train, " and ", format.test, " there and in ", inner.string(), "; ", format.cure);
}

std::string numbered_train_file(int number) { return concat("data_batch_", number, ".bin"); }

std::vector<fs::path> cifar10_train_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (int number = 1; fs::exists(folder / numbered_train_file(number)); ++number)
    files.push_back(folder / numbered_train_file(number));
  const int found = static_cast<int>(files.size());
  for (int later = found + 2; later <= kOfficialFiles; ++later)
    if (fs::exists(folder / numbered_train_file(later)))
      fail("no ", (folder / numbered_train_file(found + 1)).string(), ", but there is ", numbered_train_file(later),
           ": the data set is incomplete; ", kCifar10.cure);
  if (found > 0 && found < kOfficialFiles)
    log_warn("{} holds {} of the {} training files of {}; training on those", folder.string(), found, kOfficialFiles,
             kCifar10.title);
  return files;
}

std::vector<fs::path> files_of(const fs::path& folder, CifarKind kind, Split split) {
  const Format& format = format_of(kind);
  std::vector<fs::path> files;
  if (split == Split::kTest) {
    files = {folder / format.test};
  } else if (kind == CifarKind::k10) {
    files = cifar10_train_files(folder);
  } else {
    files = {folder / format.train};
  }
  if (files.empty() || !fs::exists(files[0]))
    fail("no ", (folder / (split == Split::kTest ? format.test : format.train)).string(), "; ", format.cure);
  return files;
}

// Appends images and labels of one file.
void append_file(const fs::path& path, const Format& format, std::vector<uint8_t>& pixels,
                 std::vector<uint8_t>& labels) {
  const std::string content = read_file(path.string());
  const auto bytes = std::ssize(content), record = format.record();
  if (bytes == 0) fail(path.string(), " is empty; ", format.cure);
  if (bytes % record != 0)
    fail(path.string(), " has ", bytes, " bytes, which is no multiple of the ", format.title, " record of ", record,
         " bytes (", bytes / record, " images and ", bytes % record, " bytes): it is truncated or something else; ",
         format.cure);
  const int64_t images = bytes / record;
  const size_t first = pixels.size();
  pixels.resize(first + static_cast<size_t>(images * kPixels));
  for (int64_t i = 0; i < images; ++i) {
    const auto* from = reinterpret_cast<const uint8_t*>(content.data()) + i * record + format.label_bytes;
    const int label = from[-1];
    if (label >= format.classes)
      fail(path.string(), ": record ", i, " (from 0) has label ", label, ", wanted 0 to ", format.classes - 1,
           ": the file is damaged or not ", format.title, "; ", format.cure);
    labels.push_back(static_cast<uint8_t>(label));
    uint8_t* to = pixels.data() + first + i * kPixels;
    for (int64_t p = 0; p < kPlane; ++p)
      for (int64_t c = 0; c < kChannels; ++c) to[p * kChannels + c] = from[c * kPlane + p];
  }
}

std::vector<std::string> read_names(const fs::path& path, int classes) {
  if (!fs::exists(path)) return {};
  std::vector<std::string> names = text_lines(path.string());
  std::erase(names, "");
  if (std::ssize(names) != classes)
    fail(path.string(), " has ", names.size(), " class names, wanted ", classes, "; correct it or remove it");
  return names;
}

}  // namespace

bool has_cifar(const std::string& dir, CifarKind kind, Split split) {
  const Format& format = format_of(kind);
  const char* const file = split == Split::kTest ? format.test : format.train;
  return fs::exists(fs::path(dir) / file) || fs::exists(fs::path(dir) / format.folder / file);
}

std::string fetch_command(const std::string& dir, CifarKind kind) {
  const std::string archive = kind == CifarKind::k10 ? "cifar-10-binary.tar.gz" : "cifar-100-binary.tar.gz";
  return concat("curl -O https://www.cs.toronto.edu/~kriz/", archive, " && owt prepare cifar ", archive, " ", dir);
}

std::shared_ptr<Dataset> read_cifar(const std::string& dir, CifarKind kind, Split split, int64_t channels) {
  const Format& format = format_of(kind);
  const fs::path folder = find_folder(dir, format);
  std::vector<uint8_t> pixels, labels;
  for (const fs::path& file : files_of(folder, kind, split)) append_file(file, format, pixels, labels);
  if (channels == 1) {
    write_grey(pixels.data(), std::ssize(labels) * kPlane, pixels.data());
    pixels.resize(labels.size() * kPlane);
  }
  return std::make_shared<MemoryDataset>(Shape{kSide, kSide, channels}, format.classes, std::move(pixels),
                                         std::move(labels), read_names(folder / format.names, format.classes));
}

void write_cifar10_file(const std::string& path, const Dataset& images, const Slice& range) {
  OWT_CHECK_EQ(images.image(), (Shape{kSide, kSide, kChannels}), "the images of a CIFAR-10 file");
  OWT_CHECK(images.classes() <= kCifar10.classes);
  std::vector<uint8_t> pixels(kPixels);
  std::string content(range.size() * kCifar10.record(), '\0');
  char* to = content.data();
  for (int64_t i = range.begin; i < range.end; ++i) {
    images.read(i, View{}, pixels.data());
    *to++ = static_cast<char>(images.label(i));
    for (int64_t c = 0; c < kChannels; ++c)
      for (int64_t p = 0; p < kPlane; ++p) *to++ = static_cast<char>(pixels[p * kChannels + c]);
  }
  write_file_atomically(path, content);
}

void write_cifar10_names(const std::string& dir, const std::vector<std::string>& names) {
  std::string content;
  for (const std::string& name : names) content += name + "\n";
  write_file_atomically((fs::path(dir) / kCifar10.names).string(), content);
}

}  // namespace owt
