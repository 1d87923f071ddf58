#include "data/prepare/index_tars.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <new>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "data/jpeg/bad_photo.h"
#include "data/jpeg/jpeg_window.h"
#include "data/photos/exif.h"
#include "data/prepare/class_labels.h"
#include "data/prepare/in_order.h"
#include "data/prepare/split_folder.h"
#include "data/prepare/tar_samples.h"
#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "src/system/printable.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

// Links tar files of the parent folder into the split's folder, after all were checked.
void link_into(TarSplit& split) {
  for (Tar& tar : split.tars) {
    const fs::path from = tar.path(), link = fs::path(split.folder) / from.filename();
    if (from.parent_path() == fs::path(split.folder)) continue;
    std::error_code error;
    fs::create_directories(split.folder, error);
    if (!error) fs::create_symlink(fs::path("..") / from.filename(), link, error);
    if (error) fail("cannot link ", link.string(), ": ", error.message());
    tar.images.archives[0] = link.string();
  }
}

std::optional<int64_t> number_of(const std::string& label) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(label.data(), label.data() + label.size(), number);
  if (error != std::errc() || end != label.data() + label.size()) return std::nullopt;
  return number;
}

// The lines of classes.txt that the labels require: the names in order, or the numbers up to the largest.
std::vector<std::string> classes_in_labels(const std::vector<TarSplit>& splits, const std::string& dir) {
  std::set<std::string> names;
  std::string numbered;
  int64_t most = -1;
  for (const TarSplit& split : splits)
    for (const Tar& tar : split.tars)
      for (const std::string& label : tar.labels)
        if (const auto number = number_of(label))
          most = std::max(most, *number), numbered = label;
        else
          names.insert(label);
  if (!names.empty() && !numbered.empty())
    fail(dir, ": some images are labelled by number, as ", numbered, ", others by name, as ", *names.begin(),
         "; give --classes FILE with all names, line i for label i");
  if (most >= kMostNumberedClasses) fail(dir, ": label ", most, " is too large; labels count the classes from 0");
  if (!names.empty()) return {names.begin(), names.end()};
  std::vector<std::string> classes;
  for (int64_t label = 0; label <= most; ++label) classes.push_back(std::to_string(label));
  return classes;
}

void label_images(Tar& tar, const std::vector<std::string>& classes, const ClassLabels& keys) {
  for (size_t i = 0; i < tar.labels.size(); ++i) {
    const std::string& label = tar.labels[i];
    PhotoSource& image = tar.images.photos[i];
    const auto number = number_of(label);
    if (number && (*number < 0 || *number >= std::ssize(classes)))
      fail(tar.path(), ": ", image.name, " has label ", *number, ", but there are ", classes.size(), " classes, 0 to ",
           std::ssize(classes) - 1);
    image.label = number ? static_cast<int32_t>(*number) : keys.of(label);
    if (image.label < 0)
      fail(tar.path(), ": ", image.name, " is of class '", label.substr(0, 80), "', which is none of the ",
           classes.size(), " classes; add it to classes.txt as the last line, or give --classes FILE with all names");
  }
}

// A record, or the reason why there is none.
struct Checked {
  ShardRecord record{};
  std::string problem{};
  bool turned = false;

  static int64_t bytes() { return 0; }  // results wait without their images
};

Checked checked(const PhotoFiles& files, const PhotoSource& image) try {
  thread_local WindowDecoder decoder;
  const std::string jpeg = files.read(image);
  decoder.open(jpeg);
  uint8_t last[3];
  decoder.decode({decoder.height() - 1, decoder.width() - 1, 1, 1}, 3, last);  // decodes all pixels before it
  return {.record = {.offset = image.offset,
                     .checksum = checksum_of(jpeg),
                     .bytes = static_cast<uint32_t>(jpeg.size()),
                     .height = static_cast<uint32_t>(decoder.height()),
                     .width = static_cast<uint32_t>(decoder.width()),
                     .label = image.label,
                     .name = printable(image.name)},
          .turned = jpeg_orientation(jpeg) != 1};
} catch (const BadPhoto& e) {
  return {.problem = printable(e.what())};
} catch (const std::bad_alloc&) {
  fail("out of memory at ", image.name, "; use fewer --threads");
}

// Fills in the index of each tar file; false if keep_going() returned false.
bool check_images(TarSplit& split, int threads, const std::function<bool(const PrepareState&)>& keep_going) {
  PrepareState state{.photos = split.images()};
  for (Tar& tar : split.tars) {
    tar.index.tar_bytes = fs::file_size(tar.path());
    const PhotoFiles files(tar.images);
    const std::vector<PhotoSource>& images = tar.images.photos;
    constexpr int64_t kWindow = 1024, kNoBytes = 1;
    InOrder<Checked> results(
        std::ssize(images), threads, [&](int64_t i) { return checked(files, images[i]); }, kWindow, kNoBytes);
    for (const PhotoSource& image : images) {
      std::optional<Checked> result;
      do {
        state.skipped = std::ssize(split.skipped);
        if (!keep_going(state)) return false;
        result = results.next(std::chrono::milliseconds(200));
      } while (!result);
      split.turned += result->turned;
      if (result->problem.empty())
        tar.index.records.push_back(std::move(result->record));
      else
        split.skip(tar, image.name, result->problem);
      ++state.done;
    }
  }
  return true;
}

IndexedSplit counts_of(const TarSplit& split, size_t classes) {
  IndexedSplit counts{.folder = split.folder,
                      .skipped = std::ssize(split.skipped),
                      .shards = std::ssize(split.tars),
                      .classes = static_cast<int64_t>(classes),
                      .turned = split.turned};
  for (const Tar& tar : split.tars) counts.images += std::ssize(tar.index.records);
  return counts;
}

void check_limit(const TarSplit& split, const std::function<int64_t(int64_t)>& most) {
  const int64_t skipped = std::ssize(split.skipped), good = counts_of(split, 0).images;
  if (good > 0 && skipped <= most(skipped + good)) return;
  if (skipped == 0) fail(split.folder, ": its tar files hold no images");
  std::string first = split.skipped.front();
  std::replace(first.begin(), first.end(), '\t', ' ');
  fail(split.folder, ": ", skipped, " of ", skipped + good,
       " images cannot be used, more than --max-skipped allows: ", first);
}

void write_indexes(const TarSplit& split, const IndexedSplit& counts) {
  const auto path = [&](const char* name) { return (fs::path(split.folder) / name).string(); };
  std::string skipped, names;
  uint64_t bytes = 0;
  for (const std::string& line : split.skipped) skipped += line + "\n";
  for (const Tar& tar : split.tars) {
    names += fs::path(tar.path()).stem().string() + "\n";
    bytes += tar.index.tar_bytes;
    write_file_atomically(fs::path(tar.path()).replace_extension(".index").string(), shard_index_bytes(tar.index));
  }
  write_file_atomically(path(kSkipped), skipped);
  write_file_atomically(path(kShardNames), names);
  write_file_atomically(
      path(kDataset),
      format("{{\n\"images\": {},\n\"classes\": {},\n\"shards\": {},\n\"bytes\": {},\n\"skipped\": {}\n}}\n",
             counts.images, counts.classes, counts.shards, bytes, counts.skipped));
}

}  // namespace

std::vector<IndexedSplit> index_tars(const std::string& dir, const TarIndexing& settings,
                                     const std::function<bool(const PrepareState&)>& keep_going) try {
  std::vector<TarSplit> splits = splits_in(dir);
  const DataSetFolder folder(dir);
  for (TarSplit& split : splits)
    for (Tar& tar : split.tars) read_samples(split, tar);
  std::vector<std::string> classes = settings.classes.empty() ? folder.classes() : settings.classes;
  if (classes.empty()) classes = classes_in_labels(splits, dir);
  const ClassLabels keys(classes);
  for (TarSplit& split : splits) {
    for (Tar& tar : split.tars) label_images(tar, classes, keys);
    if (!check_images(split, settings.threads, keep_going)) return {};
    check_limit(split, settings.most_skipped);
  }
  // Existing indexes may belong to other classes, and the colours to other images.
  for (const TarSplit& split : splits)
    for (const char* old : {kDataset, kStatistics}) fs::remove(fs::path(split.folder) / old);
  for (TarSplit& split : splits) link_into(split);
  if (folder.classes() != classes) folder.write_classes(classes);
  std::vector<IndexedSplit> results;
  for (const TarSplit& split : splits) write_indexes(split, results.emplace_back(counts_of(split, classes.size())));
  return results;
} catch (const fs::filesystem_error& e) {
  fail("cannot index ", dir, ": ", e.code().message(), ": ", e.path1().string());
}

}  // namespace owt
