#include "data/shards.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <new>
#include <utility>

#include "data/jpeg/bad_photo.h"
#include "data/jpeg/device_jpeg.h"
#include "data/json_numbers.h"
#include "data/load_stages.h"
#include "data/other_data.h"
#include "data/resize.h"
#include "src/core/philox.h"
#include "src/core/uniform.h"
#include "src/system/files.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrepareByForce = "; run owt prepare again, and if it finds nothing to do, with --force";
constexpr int kTries = 10;
constexpr uint64_t kBlocksPerSample = 16;  // random numbers: one block per try

std::array<double, 2> read_pair(Config& table, const std::string& key, std::array<double, 2> otherwise, double most) {
  if (!table.given(key)) return otherwise;
  const std::vector<double> values = table.numbers(key);
  if (values.size() != 2 || !(values[0] > 0) || !(values[0] <= values[1]) || !(values[1] <= most))
    table.error(key,
                concat("'", key, "' wants two numbers above 0 and at most ", most, ", the smaller one first, e.g. [",
                       otherwise[0] > 0 ? otherwise[0] : 0.08, ", ", otherwise[1] > 0 ? otherwise[1] : 1, "]"));
  return {values[0], values[1]};
}

double between(const std::array<double, 2>& range, uint32_t bits) {
  return range[0] + (range[1] - range[0]) * Philox::to_uniform(bits);
}

ImageWindow random_square(int64_t side, const Philox& random, int64_t index, int64_t height, int64_t width) {
  const auto bits = random.block(index * kBlocksPerSample);
  return {below(height - side + 1, bits[0]), below(width - side + 1, bits[1]), side, side};
}

ImageWindow random_part(const CropSettings& settings, const Philox& random, int64_t index, int64_t height,
                        int64_t width) {
  const double pixels = height * width;
  for (int t = 0; t < kTries; ++t) {
    const auto bits = random.block(index * kBlocksPerSample + t);
    const double area = pixels * between(settings.area, bits[0]);
    const double aspect = std::exp(between({std::log(settings.aspect[0]), std::log(settings.aspect[1])}, bits[1]));
    const int64_t wide = std::lround(std::sqrt(area * aspect)), high = std::lround(std::sqrt(area / aspect));
    if (wide >= 1 && high >= 1 && wide <= width && high <= height)
      return {below(height - high + 1, bits[2]), below(width - wide + 1, bits[3]), high, wide};
  }
  const double aspect = static_cast<double>(width) / height;
  int64_t high = height, wide = width;
  if (aspect < settings.aspect[0]) high = std::lround(width / settings.aspect[0]);
  if (aspect > settings.aspect[1]) wide = std::lround(height * settings.aspect[1]);
  high = std::clamp<int64_t>(high, 1, height);
  wide = std::clamp<int64_t>(wide, 1, width);
  return {(height - high) / 2, (width - wide) / 2, high, wide};
}

// Throws Error if the folder holds tar files of another program.
void check_foreign_tars(const std::string& dir, const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / "prepare.json", error)) return;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".tar" && !fs::exists(fs::path(at->path()).replace_extension(".index"), error))
      fail(folder.string(), " holds tar files without an index, as ", at->path().filename().string(),
           "; owt prepare index ", dir, " makes them readable");
}

// Each shard is an open file, and owt raises its limit as far as it may (src/system/process_start.h).
void check_open_files(const std::string& folder, int64_t shards) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && std::cmp_less(limit.rlim_cur, shards))
    fail(folder, " has ", shards, " shards, and this process may open ", limit.rlim_cur,
         " files; raise the limit (ulimit -Hn), or prepare the data set with more --shard-images");
}

// Names without their endings.
std::vector<std::string> shard_names(const fs::path& folder, int64_t shards) {
  const std::string list = (folder / kShardNames).string();
  std::vector<std::string> names;
  if (!fs::exists(list)) {
    for (int64_t shard = 0; shard < shards; ++shard) names.push_back(shard_file_name(shard, ""));
    return names;
  }
  names = text_lines(list);
  if (std::ssize(names) != shards)
    fail(list, " names ", names.size(), " shards, dataset.json says ", shards, "; run owt prepare index again");
  for (const std::string& name : names)
    if (name.find('/') != std::string::npos) fail(list, ": '", name, "' is no name of a file beside it");
  return names;
}

}  // namespace

std::vector<std::string> shard_classes(const std::string& folder) {
  const std::string path = (fs::path(folder) / "classes.txt").string();
  if (!fs::is_regular_file(path)) {
    const std::string other = other_data(folder);
    fail("no file ", path, ": this is no prepared data set; ", other.empty() ? "owt prepare makes one" : other);
  }
  std::vector<std::string> lines = text_lines(path);
  if (lines.empty()) fail(path, " names no classes", kPrepareByForce);
  return lines;
}

CropSettings CropSettings::from(Config& table, int64_t otherwise_crop) {
  CropSettings settings;
  settings.crop = table.integer("crop", otherwise_crop, {.low = 1, .high = 1 << 14});
  settings.short_side =
      table.integer("short_side", std::max(settings.short_side, settings.crop), {.low = 1, .high = 1 << 14});
  if (settings.crop > settings.short_side)
    table.error("crop", concat("'crop' is ", settings.crop, ", wanted at most ", settings.short_side,
                               ", the length of the short side; raise 'short_side'"));
  settings.area = read_pair(table, "area", settings.area, 1);
  settings.aspect = read_pair(table, "aspect", settings.aspect, 100);
  if (table.has("aspect") && !table.has("area"))
    table.error("aspect", "'aspect' is of random parts of the image; give 'area' too, e.g. area = [0.08, 1.0]");
  return settings;
}

ImageWindow window_of(const CropSettings& settings, const View& view, int64_t index, int64_t height, int64_t width) {
  const Philox random(view.seed, RandomStream::kAugment, view.epoch, "window");
  if (view.training && settings.area[1] > 0) return random_part(settings, random, index, height, width);
  const int64_t small = std::min(height, width);
  const int64_t side =
      std::max<int64_t>(1, (2 * settings.crop * small + settings.short_side) / (2 * settings.short_side));
  if (view.training) return random_square(side, random, index, height, width);
  const int64_t below = height - side, right = width - side;
  if (view.place() == 0) return {below / 2, right / 2, side, side};
  return {view.place() >= 3 ? below : 0, view.place() % 2 == 0 ? right : 0, side, side};
}

ShardDataset::ShardDataset(const std::string& folder, Split split, const CropSettings& settings) : settings_(settings) {
  const fs::path part = fs::path(folder) / (split == Split::kTrain ? "train" : "val");
  class_lines_ = shard_classes(folder);
  if (!fs::is_directory(part))
    fail("no folder ", part.string(), ": this data set has no ", split == Split::kTrain ? "training" : "validation",
         " images; owt prepare makes them (folder and list: with ",
         split == Split::kTrain ? "" : "--validation 0.1, or ", "--split ", part.filename().string(), ")",
         split == Split::kTrain ? "" : "; or hold some training images out: --set data.validation=0.1");
  const std::string summary = (part / "dataset.json").string();
  if (!fs::is_regular_file(summary)) check_foreign_tars(folder, part);
  if (!fs::is_regular_file(summary))
    fail(part.string(), " is not complete: there is no dataset.json, which is written last", kPrepareByForce);
  const JsonNumbers counts(summary);
  const int64_t shards = counts.count("shards"), images = counts.count("images");
  if (counts.count("classes") != classes())
    fail(summary, " says ", counts.count("classes"), " classes, classes.txt names ", classes(), kPrepareByForce);
  check_open_files(part.string(), shards);
  for (const std::string& name : shard_names(part, shards)) open_shard((part / name).string());
  if (size() != images) fail(summary, " says ", images, " images, the indexes have ", size(), kPrepareByForce);
  if (images == 0) fail(part.string(), " holds no images", kPrepareByForce);
}

std::vector<std::string> ShardDataset::class_names() const {
  std::vector<std::string> names;
  for (const std::string& line : class_lines_) names.push_back(shown_class(line));
  return names;
}

uint64_t ShardDataset::checksum() const {
  static_assert(std::has_unique_object_representations_v<Record>, "a record's bytes are its values");
  return checksum_of({reinterpret_cast<const char*>(records_.data()), records_.size() * sizeof(Record)});
}

void ShardDataset::open_shard(const std::string& base) {
  Shard shard;
  shard.path = base + ".tar";
  shard.first_record = size();
  const ShardIndex index = parse_shard_index(read_file(base + ".index"), base + ".index");
  for (const ShardRecord& r : index.records) {
    if (r.label >= classes())
      fail(base, ".index: label ", r.label, ", but classes.txt names ", classes(), " classes", kPrepareByForce);
    records_.push_back({r.offset, r.checksum, r.bytes, r.height, r.width, r.label,
                        static_cast<uint32_t>(shards_.size()), static_cast<uint32_t>(shard.names.size())});
    shard.names += r.name;
  }
  shard.file = InputFile(shard.path);
  if (!shard.file.is_open()) fail("cannot open ", shard.path, ": ", std::strerror(errno));
  if (const int64_t bytes = shard.file.size(); std::cmp_not_equal(bytes, index.tar_bytes))
    fail(shard.path, " has ", bytes, " bytes, its index says ", index.tar_bytes, kPrepareByForce);
  shard.file.expect_random_access();
  shards_.push_back(std::move(shard));
}

std::string ShardDataset::name(int64_t index) const {
  const Record& r = record(index);
  const std::string& names = shards_[r.shard].names;
  const bool last = index + 1 == size() || record(index + 1).shard != r.shard;
  return names.substr(r.name, (last ? names.size() : record(index + 1).name) - r.name);
}

void ShardDataset::corrupt(int64_t index, const std::string& why) const {
  const Shard& shard = shards_[record(index).shard];
  throw CorruptRecord(concat(shard.path, ": record ", index - shard.first_record, " (from 0), image ", index, ", ",
                             name(index), ": ", why, "; prepare the data set again with --force"));
}

std::string_view ShardDataset::file_of(int64_t index) const {
  thread_local std::string file;
  const Record& r = record(index);
  file.resize(r.bytes);
  if (const std::string problem = shards_[r.shard].file.read(r.offset, file); !problem.empty())
    corrupt(index, concat("it cannot be read: ", problem));
  if (checksum_of(file) != r.checksum) corrupt(index, "its checksum does not match");
  return file;
}

template <class Decode>
void ShardDataset::decode(int64_t index, const Decode& decode) const {
  thread_local WindowDecoder decoder;
  const std::string_view file = file_of(index);
  StageClock::end(LoadStage::kRead);
  std::string why;
  try {
    decoder.open(file);
    if (decoder.height() == record(index).height && decoder.width() == record(index).width) return decode(decoder);
    why = concat("it is ", decoder.height(), " x ", decoder.width(), ", its index says ", record(index).height, " x ",
                 record(index).width);
  } catch (const BadPhoto& e) {
    why = e.what();
  } catch (const std::bad_alloc&) {  // not damage, so the record must not be replaced by the next one
    fail("out of memory at image ", index, ", ", name(index), "; use fewer --threads or a smaller batch");
  }
  corrupt(index, why);
}

void ShardDataset::read(int64_t index, const View& view, uint8_t* pixels) const {
  thread_local Resizer resizer;
  thread_local std::vector<uint8_t> part;
  decode(index, [&](WindowDecoder& decoder) {
    const ImageWindow window = window_of(settings_, view, index, decoder.height(), decoder.width());
    const bool as_large = window.height == settings_.crop && window.width == settings_.crop;
    if (!as_large) part.resize(window.height * window.width * settings_.channels);
    decoder.decode(window, settings_.channels, as_large ? pixels : part.data());
    StageClock::end(LoadStage::kDecode);
    if (as_large) return;
    resizer.run(part.data(), window.height, window.width, settings_.channels, settings_.crop, pixels);
    StageClock::end(LoadStage::kResize);
  });
}

// Files that pass are baseline JPEG whose checksum and header are right. owt prepare has decoded them once.
FileRow ShardDataset::read_jpeg(int64_t index, const View& view, uint8_t* bytes) const {
  thread_local BaselineJpeg header;
  const Record& r = record(index);
  const FileRow row{r.bytes, r.height, r.width, window_of(settings_, view, index, r.height, r.width)};
  if (DeviceJpeg::supports(row, settings_.crop, settings_.channels)) {
    const std::string_view file = file_of(index);
    if (header.open(file) && header.height() == r.height && header.width() == r.width) {
      std::memcpy(bytes, file.data(), file.size());
      return row;
    }
  }
  read(index, view, bytes);
  return {};
}

int64_t ShardDataset::most_pixels_of_files() const {
  int64_t most = 0;
  for (const Record& r : records_)
    if (const int64_t pixels = int64_t{r.height} * r.width; pixels <= DeviceJpeg::kMostPixels)
      most = std::max(most, pixels);
  return most < DeviceJpeg::kLeastPixels ? 0 : most;
}

void ShardDataset::read_whole(int64_t index, WholeImage& image) const {
  decode(index, [&](WindowDecoder& decoder) {
    image.height = decoder.height();
    image.width = decoder.width();
    image.pixels.resize(image.height * image.width * 3);
    decoder.decode({0, 0, image.height, image.width}, 3, image.pixels.data());
  });
}

}  // namespace owt
