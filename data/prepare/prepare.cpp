#include "data/prepare/prepare.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "data/order.h"
#include "data/photos/photo.h"
#include "data/prepare/in_order.h"
#include "data/prepare/split_folder.h"
#include "data/prepare/tar.h"
#include "data/relabelled.h"
#include "data/shard_index.h"
#include "data/shards.h"
#include "src/system/check.h"
#include "src/system/csv.h"
#include "src/system/files.h"
#include "src/system/kept_files.h"
#include "src/system/log.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPreparation = -1;  // no training epoch visits the photos in this order
constexpr int kRestartInRows = 1;     // so that a crop need not be decoded from the top

std::string without_control_characters(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

// A photo as its record, or the reason why there is none.
struct Converted {
  std::string jpeg{}, problem{};
  int64_t height = 0, width = 0;

  int64_t bytes() const { return std::ssize(jpeg); }
};

Converted converted(const PhotoFiles& files, const PhotoSource& source, const PrepareSettings& settings) try {
  Photo photo = read_photo(files.read(source), {.short_side = settings.short_side});
  if (settings.short_side > 0) photo = resized(std::move(photo), settings.short_side);
  return {
      .jpeg = jpeg_of(photo, {.quality = settings.quality, .restart_in_rows = kRestartInRows, .grey = settings.grey}),
      .height = photo.height,
      .width = photo.width};
} catch (const BadPhoto& e) {
  return {.problem = without_control_characters(e.what())};
} catch (const std::bad_alloc&) {
  fail("out of memory at ", source.name, "; use fewer --threads");
}

// Everything that the output depends on, as text: equal texts mean equal outputs.
std::string settings_text(const PhotoSources& sources, const PrepareSettings& settings) {
  std::string all;
  for (const PhotoSource& photo : sources.photos)
    all += format("{}\t{}\t{}\t{}\n", photo.name, photo.label, photo.offset, photo.bytes);
  return format(
      "{{\n\"version\": 1,\n\"size\": {},\n\"quality\": {},\n{}\"shard images\": {},\n\"shuffle\": {},\n\"seed\": {},\n"
      "\"classes\": {},\n\"sources\": {},\n\"checksum of their names, labels and sizes\": \"{}\"\n}}\n",
      settings.short_side, settings.quality, settings.grey ? "\"grey\": true,\n" : "", settings.shard_images,
      settings.shuffle, settings.seed, sources.classes.size(), sources.photos.size(), hex(checksum_of(all)));
}

// "'"size": 128' there, '"size": 256' now"
std::string first_difference(const std::string& there, const std::string& now) {
  const std::vector<std::string> old_lines = split_lines(there), lines = split_lines(now);
  const auto plain = [](std::string line) {
    std::erase_if(line, [](char c) { return c == '"' || c == ','; });
    return line;
  };
  for (size_t i = 0; i < std::min(old_lines.size(), lines.size()); ++i)
    if (old_lines[i] != lines[i]) return plain(old_lines[i]) + " there, " + plain(lines[i]) + " now";
  return "another version";
}

class SplitWriter {
 public:
  SplitWriter(const PhotoSources& sources, const std::string& dir, const PrepareSettings& settings)
      : sources_(sources), settings_(settings), dir_(dir), held_((check_split_folder(dir), dir)) {
    order_ = epoch_order(settings_.seed, kPreparation, photos(), settings_.shuffle);
    prepared_.shards = (photos() + settings_.shard_images - 1) / settings_.shard_images;
    prepared_.images_of_classes.resize(sources_.classes.size());
  }

  Prepared prepare(const std::function<bool(const PrepareState&)>& keep_going) {
    if (begin() == Prepared::How::kBefore) return {.how = Prepared::How::kBefore};
    find_missing_shards();
    check_skipped();
    if (!write_missing_shards(keep_going)) {
      prepared_.how = Prepared::How::kStopped;
      return prepared_;
    }
    if (prepared_.images == 0) fail("not one of the ", photos(), " images is good; ", write_skipped(), " says why");
    finish();
    return prepared_;
  }

 private:
  int64_t photos() const { return std::ssize(sources_.photos); }
  PrepareState state() const { return {prepared_.images + prepared_.skipped, photos(), prepared_.skipped}; }
  std::string path(const std::string& name) const { return (fs::path(dir_) / name).string(); }
  std::string path(int64_t shard, const char* ending) const { return path(shard_file_name(shard, ending)); }

  Prepared::How begin() {
    const std::string now = settings_text(sources_, settings_);
    if (!is_prepared_split(dir_)) {
      write_file_atomically(path(kSettings), now);
      return Prepared::How::kNow;
    }
    const std::string there = read_file(path(kSettings));
    const bool complete = fs::exists(path(kDataset));
    if (there != now)
      fail(dir_, " is ", complete ? "prepared" : "half prepared", " already, from other files or with other settings (",
           first_difference(there, now), "); choose another folder, or begin anew with --force");
    remove_temporary(complete);
    if (complete && intact()) return Prepared::How::kBefore;
    if (complete) reopen();
    return Prepared::How::kNow;
  }

  std::optional<ShardIndex> index_of(int64_t shard) const try {
    const std::string index_path = path(shard, ".index"), tar_path = path(shard, ".tar");
    if (!fs::exists(index_path) || !fs::exists(tar_path)) return std::nullopt;
    ShardIndex index = parse_shard_index(read_file(index_path), index_path);
    return fs::file_size(tar_path) == index.tar_bytes ? std::optional(std::move(index)) : std::nullopt;
  } catch (const Error&) {  // a damaged index
    return std::nullopt;
  }

  // Whether a complete split still has all its images, judged by file sizes.
  bool intact() const {
    Prepared found{.skipped = std::ssize(lines_of(path(kSkipped))), .shards = prepared_.shards};
    for (int64_t shard = 0; shard < prepared_.shards; ++shard) {
      const auto index = index_of(shard);
      if (!index) return false;
      found.images += std::ssize(index->records);
      found.bytes += index->tar_bytes;
    }
    return found.images + found.skipped == photos() && read_file(path(kDataset)) == summary_text(found);
  }

  // Turns a complete split into a partial one, in which each shard has its own part of skipped.txt.
  void reopen() {
    log_warn("{}: some files are damaged or missing; they are made anew", dir_);
    std::map<std::string, std::string> lines;
    for (const std::string& line : lines_of(path(kSkipped))) lines[line.substr(0, line.find('\t'))] = line;
    for (int64_t shard = 0; shard < prepared_.shards; ++shard) {
      std::string part;
      for (int64_t place = begin_of(shard); place < begin_of(shard + 1); ++place)
        if (const auto line = lines.find(without_control_characters(source(place).name)); line != lines.end())
          part += line->second + "\n";
      if (!part.empty()) write_file_atomically(path(shard, ".skipped"), part);
    }
    fs::remove(path(kDataset));
    sync_folder(dir_);
  }

  void remove_temporary(bool complete) {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(dir_)) {
      const std::string ending = entry.path().extension().string();
      if (ending == ".tmp" || (complete && ending == ".skipped")) files.push_back(entry.path());
    }
    for (const fs::path& file : files) fs::remove(file);
  }

  int64_t begin_of(int64_t shard) const { return std::min(shard * settings_.shard_images, photos()); }

  void find_missing_shards() {
    for (int64_t shard = 0; shard < prepared_.shards; ++shard) {
      if (count_complete(shard)) continue;
      // The index first: while it exists, it must describe the tar file.
      for (const char* ending : {".index", ".tar", ".skipped"}) fs::remove(path(shard, ending));
      missing_.push_back(shard);
    }
  }

  bool count_complete(int64_t shard) {
    const auto index = index_of(shard);
    if (!index) return false;
    const auto images = std::ssize(index->records), skipped = std::ssize(lines_of(path(shard, ".skipped")));
    if (images + skipped != begin_of(shard + 1) - begin_of(shard)) return false;
    if (std::ranges::any_of(index->records, [&](const ShardRecord& record) {
          return record.label < 0 || record.label >= std::ssize(sources_.classes);
        }))
      return false;
    prepared_.images += images;
    for (const ShardRecord& record : index->records) ++prepared_.images_of_classes[record.label];
    prepared_.skipped += skipped;
    prepared_.bytes += index->tar_bytes;
    return true;
  }

  void check_skipped() {
    if (prepared_.skipped <= settings_.most_skipped) return;
    const std::string file = write_skipped();
    std::vector<std::string> lines = text_lines(file);
    for (std::string& line : lines) std::replace(line.begin(), line.end(), '\t', ' ');
    const int64_t read = prepared_.images + prepared_.skipped;
    fail(prepared_.skipped, " of ", read < photos() ? concat("the first ", read, " of ") : "", photos(),
         " images cannot be used, more than --max-skipped allows (", settings_.most_skipped, "): ", first_names(lines),
         "; ", file, " lists them; with a higher limit the same command goes on");
  }

  bool write_missing_shards(const std::function<bool(const PrepareState&)>& keep_going) {
    std::vector<int64_t> places;  // indices in the order of the photos of the missing shards
    for (const int64_t shard : missing_)
      for (int64_t place = begin_of(shard); place < begin_of(shard + 1); ++place) places.push_back(place);
    const PhotoFiles files(sources_);
    constexpr int64_t kWindow = 1024, kWindowBytes = int64_t{1} << 28;
    InOrder<Converted> photos(
        std::ssize(places), settings_.threads,
        [&](int64_t i) { return converted(files, source(places[i]), settings_); }, kWindow, kWindowBytes);
    for (const int64_t shard : missing_) {
      if (!write_shard(shard, photos, keep_going)) return false;
      check_skipped();
    }
    return true;
  }

  const PhotoSource& source(int64_t place) const { return sources_.photos[order_[place]]; }

  bool write_shard(int64_t shard, InOrder<Converted>& photos,
                   const std::function<bool(const PrepareState&)>& keep_going) {
    const std::string tar_path = path(shard, ".tar"), beside = tar_path + ".tmp";
    ShardIndex index;
    std::string skipped;
    {
      TarWriter tar(beside);
      for (int64_t place = begin_of(shard); place < begin_of(shard + 1); ++place) {
        std::optional<Converted> photo;
        do {
          if (!keep_going(state())) return false;
          photo = photos.next(std::chrono::milliseconds(200));
        } while (!photo);
        add(place, *photo, tar, index, skipped);
      }
      index.tar_bytes = tar.close();
    }
    std::error_code error;
    fs::rename(beside, tar_path, error);
    if (error) fail("cannot write ", tar_path, ": ", error.message());
    if (!skipped.empty()) write_file_atomically(path(shard, ".skipped"), skipped);
    write_file_atomically(path(shard, ".index"), shard_index_bytes(index));
    prepared_.bytes += index.tar_bytes;
    return true;
  }

  void add(int64_t place, const Converted& photo, TarWriter& tar, ShardIndex& index, std::string& skipped) {
    const PhotoSource& from = source(place);
    const std::string name = without_control_characters(from.name);
    if (!photo.problem.empty()) {
      skipped += name + "\t" + photo.problem + "\n";
      ++prepared_.skipped;
      return;
    }
    const std::string key = format("{:06}", place);
    index.records.push_back({.offset = tar.add(key + ".jpg", photo.jpeg),
                             .checksum = checksum_of(photo.jpeg),
                             .bytes = static_cast<uint32_t>(photo.jpeg.size()),
                             .height = static_cast<uint32_t>(photo.height),
                             .width = static_cast<uint32_t>(photo.width),
                             .label = from.label,
                             .name = name});
    tar.add(key + ".cls", std::to_string(from.label));
    ++prepared_.images;
    ++prepared_.images_of_classes[from.label];
  }

  // Concatenates the parts of the complete shards; returns the path.
  std::string write_skipped() const {
    std::string all;
    for (int64_t shard = 0; shard < prepared_.shards; ++shard)
      for (const std::string& line : lines_of(path(shard, ".skipped"))) all += line + "\n";
    write_file_atomically(path(kSkipped), all);
    return path(kSkipped);
  }

  std::string summary_text(const Prepared& all) const {
    return format(
        "{{\n\"images\": {},\n\"classes\": {},\n\"shards\": {},\n\"bytes\": {},\n\"skipped\": {},\n\"short side\": "
        "{}\n}}\n",
        all.images, sources_.classes.size(), all.shards, all.bytes, all.skipped, settings_.short_side);
  }

  void finish() {
    write_skipped();
    write_file_atomically(path(kDataset), summary_text(prepared_));
    remove_temporary(true);
  }

  const PhotoSources& sources_;
  const PrepareSettings& settings_;
  const std::string dir_;
  const HeldFolder held_;
  std::vector<int64_t> order_;    // source at each place
  std::vector<int64_t> missing_;  // shards
  Prepared prepared_;
};

}  // namespace

std::string write_targets(const PhotoSources& sources, const std::string& folder, Split split) {
  std::map<std::string, const PhotoSource*> of_names;
  for (const PhotoSource& photo : sources.photos) of_names[without_control_characters(photo.name)] = &photo;
  const ShardDataset images(folder, split, {});
  const std::string path = targets_path(folder, split);
  std::string text = "name";
  for (const std::string& line : images.class_lines()) text += "," + csv_quoted(class_key(line));
  for (int64_t i = 0; i < images.size(); ++i) {
    const PhotoSource& photo = *of_names.at(images.name(i));
    std::vector<double> targets(images.classes());
    if (photo.targets.empty()) targets[photo.label] = 1;
    for (const ClassTarget& of : photo.targets) targets[of.label] = of.target;
    text += "\n" + csv_quoted(images.name(i));
    for (const double target : targets) text += format(",{:.9g}", target);
  }
  if (const std::string old = write_keeping_old(path, text + "\n"); !old.empty())
    log_info("the table that was there is kept as {}", old);
  return path;
}

Prepared prepare_split(const PhotoSources& sources, const std::string& dir, const PrepareSettings& settings,
                       const std::function<bool(const PrepareState&)>& keep_going) try {
  return SplitWriter(sources, dir, settings).prepare(keep_going);
} catch (const fs::filesystem_error& e) {
  fail("cannot prepare ", dir, ": ", e.what());
}

}  // namespace owt
