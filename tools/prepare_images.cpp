// owt prepare imagenet, folder and list: photos as shards.
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>

#include "data/imagenet.h"
#include "data/prepare.h"
#include "src/core/files.h"
#include "src/core/log.h"
#include "src/core/threads.h"
#include "src/train/progress.h"
#include "src/train/signals.h"
#include "tools/commands.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

constexpr int kStoppedOnSignal = 75;  // EX_TEMPFAIL of sysexits.h: come again

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// How far the preparation is: one line, redrawn on a terminal.
class PrepareProgress {
 public:
  explicit PrepareProgress(std::string split) : split_(std::move(split)), style_(progress_style()) {}
  ~PrepareProgress() {
    if (drawn_) std::cerr << "\r\x1b[K" << std::flush;
  }
  PrepareProgress(const PrepareProgress&) = delete;
  PrepareProgress& operator=(const PrepareProgress&) = delete;

  void update(const PrepareState& state) {
    const bool terminal = style_ == ProgressStyle::kTerminal;
    const double now = now_seconds();
    if (begun_ < 0) {
      begun_ = shown_ = now;
      first_ = state.done;
    }
    if (now - shown_ < (terminal ? kRedrawSeconds : kPlainSeconds)) return;
    shown_ = now;
    drawn_ = terminal;
    std::cerr << (terminal ? "\r\x1b[K" : "") << line(state, now - begun_) << (terminal ? "" : "\n") << std::flush;
  }

 private:
  static constexpr double kRedrawSeconds = 0.2, kPlainSeconds = 5;

  std::string line(const PrepareState& state, double seconds) const {
    const double rate = static_cast<double>(state.done - first_) / seconds,
                 left = static_cast<double>(state.photos - state.done) / rate;
    return format("{}  {}/{}  {:.1f} %  {:.0f} images/s  left {}  skipped {}", split_, state.done, state.photos,
                  100.0 * static_cast<double>(state.done) / static_cast<double>(state.photos), rate,
                  duration_text(left), state.skipped);
  }

  const std::string split_;
  const ProgressStyle style_;
  double begun_ = -1, shown_ = 0;
  int64_t first_ = 0;  // done by an earlier process
  bool drawn_ = false;
};

void declare_preparation(Options& options) {
  options.option("size", "PIXELS", "256", "length of the short side; 0: as it is");
  options.option("quality", "Q", "90", "of the JPEG files, 1 to 100");
  options.option("shard-images", "N", "1000", "images per shard");
  options.option("seed", "S", "1", "of the order of the images");
  options.flag("no-shuffle", "keep the images in the order of classes and names, or of the list");
  options.option("max-skipped", "N", "0.1%", "end with an error beyond so many bad images, a number or per cent");
  options.option("names", "FILE", "lines `class words`, e.g. LOC_synset_mapping.txt: words for classes.txt");
  options.option("threads", "T", "0", "0: all cores");
  options.flag("force", "begin anew where a prepared split is there already");
}

int64_t most_skipped(const Options& options, int64_t photos) {
  const std::string text = options.string("max-skipped");
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, text.data() + text.size());
  const bool percent = unit == "%";
  if (error != std::errc() || !(value >= 0 && value <= (percent ? 100 : 1e15)) ||
      !(percent || (unit.empty() && value == std::floor(value))))
    throw UsageError("--max-skipped " + text + ": wanted a number of images, or per cent of them as in 0.1%");
  return static_cast<int64_t>(percent ? value / 100 * static_cast<double>(photos) : value);
}

PrepareSettings preparation(const Options& options) {
  const auto threads = static_cast<int>(options.integer("threads", {.low = 0, .high = 4096}));
  return {.short_side = options.integer("size", {.low = 0, .high = 16384}),
          .quality = static_cast<int>(options.integer("quality", {.low = 1, .high = 100})),
          .shard_images = options.integer("shard-images", {.low = 1, .high = 1e6}),
          .shuffle = !options.boolean("no-shuffle"),
          .seed = static_cast<uint64_t>(options.integer("seed", {.low = 0})),
          .threads = threads > 0 ? threads : hardware_cores(),
          .force = options.boolean("force")};
}

// Each key with the words that --names has for it.
std::vector<std::string> with_names(std::vector<std::string> keys, const Options& options) {
  if (!options.given("names")) return keys;
  std::map<std::string, std::string> lines;
  for (const std::string& line : text_lines(options.string("names"))) lines[line.substr(0, line.find(' '))] = line;
  for (std::string& key : keys)
    if (const auto line = lines.find(key); line != lines.end()) key = line->second;
  return keys;
}

std::string in(const std::string& dir, const std::string& name) { return (fs::path(dir) / name).string(); }

// Whether OUT/classes.txt may be written anew: no split speaks of it that is not about to be written anew itself.
bool may_renew_classes(const std::string& out, const std::vector<std::string>& splits, bool force) {
  for (const std::string split : {"train", "val"}) {
    const bool ours = std::find(splits.begin(), splits.end(), split) != splits.end();
    if (is_prepared_split(in(out, split)) && !(ours && force)) return false;
  }
  return true;
}

// The lines of OUT/classes.txt; none where it is missing or to be written anew.
std::vector<std::string> known_classes(const std::string& out, bool renew) {
  const std::string path = in(out, "classes.txt");
  return !renew && fs::exists(path) ? text_lines(path) : std::vector<std::string>();
}

int prepare_one(const PhotoSources& sources, const std::string& dir, const std::string& split, const Options& options) {
  const double begun = now_seconds();
  PrepareSettings settings = preparation(options);
  settings.most_skipped = most_skipped(options, static_cast<int64_t>(sources.photos.size()));
  Prepared prepared;
  PrepareState last;
  {
    PrepareProgress progress(split);
    prepared = prepare_split(sources, dir, settings, [&](const PrepareState& state) {
      progress.update(last = state);
      return !stop_requested();
    });
  }
  if (prepared.how == Prepared::How::kBefore) {
    std::cout << dir << ": is prepared already, from these files and with these settings\n";
    return 0;
  }
  if (prepared.how == Prepared::How::kStopped) {
    std::cerr << format("{}: stopped after {} of {} images; the same command goes on with the shard it was at\n", dir,
                        last.done, last.photos);
    return kStoppedOnSignal;
  }
  std::cout << format("{}: {} images of {} classes in {} shards, {:.1f} MB; {}{:.1f} s\n", dir, prepared.images,
                      sources.classes.size(), prepared.shards, static_cast<double>(prepared.bytes) / 1e6,
                      prepared.skipped > 0 ? format("{} skipped, see {}; ", prepared.skipped, in(dir, "skipped.txt"))
                                           : "none skipped; ",
                      now_seconds() - begun);
  if (sources.passed_over > 0)
    std::cout << format("{} files there are no images by their names and were passed over\n", sources.passed_over);
  return 0;
}

int prepare_imagenet(const Options& options) {
  const std::string from = options.string("IN"), out = options.string("OUT");
  const std::string labels = options.given("val-labels") ? options.string("val-labels") : "";
  log_info("Reading the list of files in {}", from);
  auto train = imagenet_train_sources(from);
  std::vector<std::string> splits;
  if (train) splits.push_back("train");
  if (fs::exists(in(from, "ILSVRC2012_img_val.tar")) || fs::exists(in(from, "val"))) splits.push_back("val");
  if (splits.empty())
    fail(from, " holds neither ILSVRC2012_img_train.tar nor ILSVRC2012_img_val.tar nor folders train and val");
  const auto lines = [&](const PhotoSources& sources) {
    return options.given("names") ? with_names(sources.classes, options) : named_classes(sources.classes, from);
  };
  bool renew = may_renew_classes(out, splits, options.boolean("force"));
  if (train) {
    agree_on_classes(*train, lines(*train), out, renew);
    renew = false;
  }
  // Both lists before any work: a missing label should not show after hours.
  auto val = imagenet_val_sources(from, labels, known_classes(out, renew));
  if (val) agree_on_classes(*val, lines(*val), out, renew);
  if (train)
    if (const int code = prepare_one(*train, in(out, "train"), "train", options); code != 0) return code;
  return val ? prepare_one(*val, in(out, "val"), "val", options) : 0;
}

std::string chosen_split(const Options& options) {
  const std::string split = options.string("split");
  if (split != "train" && split != "val") throw UsageError("--split " + split + ": wanted train or val");
  return split;
}

int prepare_split_of(PhotoSources sources, const std::string& out, const std::string& split, bool renew,
                     const Options& options) {
  agree_on_classes(sources, with_names(sources.classes, options), out, renew);
  return prepare_one(sources, in(out, split), split, options);
}

int prepare_folder(const Options& options) {
  const std::string split = chosen_split(options), out = options.string("OUT");
  return prepare_split_of(folder_sources(options.string("IN")), out, split,
                          may_renew_classes(out, {split}, options.boolean("force")), options);
}

int prepare_list(const Options& options) {
  const std::string split = chosen_split(options), out = options.string("OUT");
  const bool renew = may_renew_classes(out, {split}, options.boolean("force"));
  const std::vector<std::string> classes =
      options.given("classes") ? text_lines(options.string("classes")) : known_classes(out, renew);
  return prepare_split_of(
      list_sources(options.string("FILE"), options.given("root") ? options.string("root") : "", classes), out, split,
      renew, options);
}

}  // namespace

int prepare_images(const Arguments& arguments) {
  const std::string kind = arguments.front();
  Options options(
      "owt prepare " + kind,
      kind == "imagenet" ? "Writes the images of ILSVRC2012 as shards, from the official archives as they are or from "
                           "folders train and val."
      : kind == "folder" ? "Writes the images of a folder per class as shards; classes in the order of their names."
                         : "Writes the images that a text file names as shards, labels as there.");
  if (kind == "imagenet") {
    options.positional("IN",
                       "with ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and ILSVRC2012_devkit_t12.tar.gz, "
                       "or folders train and val");
  } else if (kind == "folder") {
    options.positional("IN", "IN/CLASS/*.jpg and so on: jpg, jpeg, png, bmp, webp, tif, tiff");
  } else {
    options.positional("FILE", "lines `path label`; labels are integers from 0");
  }
  options.positional("OUT", "the prepared data set: gets classes.txt and folders train and val");
  if (kind == "imagenet") {
    options.option(
        "val-labels", "FILE",
        "lines `name label` for flat validation images; a label is a synset id or an integer from 0 (default: "
        "from the devkit)");
  } else {
    options.option("split", "NAME", "train", "train | val");
  }
  if (kind == "list") {
    options.option("root", "DIR", "what the paths start from (default: the folder of FILE)");
    options.option("classes", "FILE", "the classes' names, line i that of label i (default: their numbers)");
  }
  declare_preparation(options);
  if (!options.parse(arguments.size() > 1 ? Arguments(arguments.begin() + 1, arguments.end()) : Arguments())) {
    std::cout << options.help();
    return 0;
  }
  catch_stop_signals();
  return kind == "imagenet" ? prepare_imagenet(options)
         : kind == "folder" ? prepare_folder(options)
                            : prepare_list(options);
}

}  // namespace owt
