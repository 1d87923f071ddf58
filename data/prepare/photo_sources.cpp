#include "data/prepare/photo_sources.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "data/dataset.h"
#include "data/photos/photo.h"
#include "data/prepare/class_labels.h"
#include "data/prepare/record_io.h"
#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/printable.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

// Whether it is a broken link, or an entry that cannot be examined.
bool is_out_of_reach(const fs::file_status& status) { return !fs::status_known(status) || !fs::exists(status); }

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// A broken link may have led to a folder if its name has no ending. A circular link never did.
bool may_be_folder(const fs::path& path, const std::error_code& error) {
  return error == std::errc::no_such_file_or_directory && !path.has_extension();
}

// The entries of a folder that are not hidden, by name. `error`: why some or all are missing.
std::vector<fs::directory_entry> entries_of(const fs::path& folder, std::error_code& error) {
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (!is_hidden(at->path())) entries.push_back(*at);
  std::sort(entries.begin(), entries.end());
  return entries;
}

struct ClassFolders {
  std::vector<std::string> names{};    // sorted
  std::vector<std::string> images{};   // images next to the folders
  std::vector<std::string> strange{};  // entries that cannot be examined
};

ClassFolders class_folders(const fs::path& dir) {
  std::error_code error;
  if (!fs::is_directory(dir, error)) fail("no folder ", dir.string());
  ClassFolders found;
  for (const fs::directory_entry& entry : entries_of(dir, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code unknown;
    const fs::file_status status = entry.status(unknown);
    if (fs::is_directory(status))
      found.names.push_back(name);
    else if (named_like_photo(name))
      found.images.push_back(name);
    else if (is_out_of_reach(status))
      found.strange.push_back(name);
  }
  if (error) fail("cannot read ", dir.string(), ": ", error.message());
  for (const std::string& key : found.names)
    if (has_control_characters(key)) fail(dir.string(), ": the folder '", key, "' has control characters in its name");
  if (found.names.empty()) fail(dir.string(), " holds no folders; wanted one per class, with its images in it");
  return found;
}

// Adds the photos in a folder and below it; links are followed.
class FolderPhotos {
 public:
  // out: a folder to skip, in the form of fs::canonical().
  FolderPhotos(PhotoSources& sources, fs::path out) : sources_(sources), out_(std::move(out)) {}

  void add_class(const std::string& name, int32_t label) {
    label_ = label;
    const auto first = static_cast<std::ptrdiff_t>(sources_.photos.size());
    add_folder(fs::path(sources_.root) / name);
    std::sort(sources_.photos.begin() + first, sources_.photos.end(),
              [](const PhotoSource& a, const PhotoSource& b) { return a.name < b.name; });
  }

 private:
  void add_folder(const fs::path& folder) {
    std::error_code error;
    const fs::path real = fs::canonical(folder, error);
    // A link to a folder that contains it would never end.
    if (!error && (real == out_ || std::find(within_.begin(), within_.end(), real) != within_.end())) return;
    within_.push_back(real);
    for (const fs::directory_entry& entry : entries_of(folder, error)) add(entry);
    within_.pop_back();
    if (error) add_photo(folder, 0);  // so that skipped.txt shows the reason
  }

  void add(const fs::directory_entry& entry) {
    std::error_code error;
    const fs::file_status status = entry.status(error);
    if (fs::is_directory(status)) return add_folder(entry.path());
    const bool photo = named_like_photo(entry.path().string());
    if (is_out_of_reach(status) && (photo || may_be_folder(entry.path(), error)))
      add_photo(entry.path(), 0);
    else if (photo && fs::is_regular_file(status))
      add_photo(entry.path(), entry.file_size(error));
    else
      ++sources_.passed_over;
  }

  void add_photo(const fs::path& path, uint64_t bytes) {
    const std::string name = path.lexically_relative(sources_.root).generic_string();
    sources_.photos.push_back({.name = name, .label = label_, .bytes = bytes == ~uint64_t{0} ? 0 : bytes});
  }

  PhotoSources& sources_;
  const fs::path out_;
  int32_t label_ = 0;
  std::vector<fs::path> within_;
};

// Folders that are splits of a data set would give every image a wrong label.
void check_no_splits(const std::string& dir, const std::vector<std::string>& classes) {
  std::string train, other;
  size_t splits = 0;
  for (const std::string& key : classes) {
    std::string name = key;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    const auto is_one_of = [&](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (is_one_of({"train", "training"}))
      train = key, ++splits;
    else if (is_one_of({"val", "valid", "validation", "test", "testing"}))
      other = key == "val" || other.empty() ? key : other, ++splits;
  }
  if (splits < classes.size() && (train.empty() || other.empty())) return;
  const auto in_dir = [&](const std::string& name) { return (fs::path(dir) / name).string(); };
  const std::string folder = "owt prepare folder " + in_dir(train.empty() ? other : train) + " OUT";
  fail("the folders in ", dir, " are splits, not classes: ", first_names(classes), "; ",
       train == "train" && other == "val" ? "owt prepare imagenet " + dir + " OUT takes both"
       : train.empty() || other.empty()
           ? folder + " takes the classes in it"
           : folder + ", then owt prepare folder " + in_dir(other) + " OUT --split val, take the classes in them");
}

void note_classes_without_images(PhotoSources& sources, const std::string& list) {
  std::vector<bool> used(sources.classes.size());
  for (const PhotoSource& photo : sources.photos) {
    used[photo.label] = true;
    for (const ClassTarget& of : photo.targets) used[of.label] = true;
  }
  std::vector<std::string> empty;
  for (size_t label = 0; label < used.size(); ++label)
    if (!used[label]) empty.push_back(class_key(sources.classes[label]));
  if (empty.empty()) return;
  sources.notes.push_back(concat(list, " names no image of ", empty.size() == 1 ? "class " : "the classes ",
                                 first_names(empty), !used[0] && empty.size() == 1 ? "; labels count from 0" : ""));
}

int32_t largest_label(const PhotoSource& photo) {
  int32_t most = photo.label;
  for (const ClassTarget& of : photo.targets) most = std::max(most, of.label);
  return most;
}

// Parses `3`, `3,7` or `3:0.7,7:0.3`; false if it is none.
bool parse_labels(const char* at, const char* end, PhotoSource& photo) {
  std::vector<ClassTarget> targets;
  bool plain = true;
  for (bool more = true; more; ++at) {
    ClassTarget one;
    auto [rest, error] = std::from_chars(at, end, one.label);
    if (error != std::errc() || one.label < 0) return false;
    if (rest != end && *rest == ':') {
      plain = false;
      const auto value = std::from_chars(rest + 1, end, one.target);
      rest = value.ptr;
      if (value.ec != std::errc() || !(one.target >= 0 && one.target <= 1)) return false;
    }
    for (const ClassTarget& other : targets)
      if (other.label == one.label) return false;
    targets.push_back(one);
    more = rest != end;
    if (more && *rest != ',') return false;
    at = rest;
  }
  photo.label =
      std::ranges::max(targets, {}, [](const ClassTarget& of) { return std::pair(of.target, -of.label); }).label;
  if (!plain || targets.size() > 1) photo.targets = std::move(targets);
  return true;
}

// Parses a line of a path and labels; false if it is none.
bool parse_list_line(const std::string& line, PhotoSource& photo) {
  const size_t last = line.find_last_not_of(" \t\r");
  const size_t blank = last == std::string::npos ? last : line.find_last_of(" \t", last);
  if (blank == std::string::npos) return false;
  if (!parse_labels(line.data() + blank + 1, line.data() + last + 1, photo)) return false;
  const size_t path_end = line.find_last_not_of(" \t", blank);
  if (path_end == std::string::npos) return false;
  photo.name = line.substr(0, path_end + 1);
  return true;
}

std::string read_part(const InputFile& file, uint64_t offset, uint64_t bytes) {
  if (bytes > kMostPhotoBytes) throw BadPhoto(concat(bytes, " bytes, more than a gigabyte"));
  std::string content(bytes, '\0');
  const std::string problem = file.read(offset, content);
  if (!problem.empty()) throw BadPhoto(concat("cannot be read: ", problem));
  return content;
}

}  // namespace

std::string first_names(const std::vector<std::string>& names) {
  constexpr size_t kFirst = 5;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kFirst); ++i) text += (i > 0 ? ", " : "") + printable(names[i]);
  return names.size() > kFirst ? concat(text, " and ", names.size() - kFirst, " more") : text;
}

PhotoSources folder_sources(const std::string& dir, const std::string& out) {
  std::error_code missing;
  const fs::path real_out = out.empty() ? fs::path() : fs::weakly_canonical(out, missing);
  if (!out.empty() && fs::canonical(dir, missing) == real_out)
    fail(out, " is the folder of the images itself; choose another one for the data set");
  PhotoSources sources{.root = dir};
  const ClassFolders folders = class_folders(dir);
  FolderPhotos photos(sources, real_out);
  std::vector<std::string> empty;
  for (const std::string& name : folders.names) {
    const size_t before = sources.photos.size();
    photos.add_class(name, static_cast<int32_t>(sources.classes.size()));
    if (sources.photos.size() > before)
      sources.classes.push_back(name);
    else if (fs::canonical(fs::path(dir) / name, missing) != real_out)
      empty.push_back(name);
  }
  if (sources.photos.empty())
    fail(dir, " holds no images in the folders of its classes (jpg, jpeg, png, bmp, webp, tif, tiff)");
  check_no_splits(dir, sources.classes);
  if (!empty.empty())
    sources.notes.push_back(concat(dir, ": no class of ", first_names(empty), ": no image lies there"));
  if (!folders.images.empty())
    sources.notes.push_back(concat(dir, ": passed over ", folders.images.size(),
                                   folders.images.size() == 1 ? " image that lies" : " images that lie",
                                   " beside the folders of the classes: ", first_names(folders.images)));
  if (!folders.strange.empty())
    sources.notes.push_back(concat(dir, ": cannot be reached: ", first_names(folders.strange)));
  return sources;
}

PhotoSources list_sources(const std::string& path, const std::string& root, const std::vector<std::string>& classes) {
  PhotoSources sources{.root = root.empty() ? fs::path(path).parent_path().string() : root, .classes = classes};
  int32_t most = -1;
  int64_t number = 0;
  for (const std::string& line : text_lines(path)) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    PhotoSource photo;
    if (!parse_list_line(line, photo))
      fail(path, ":", number,
           ": wanted a path and a label, an integer from 0, or several labels: 3,7 or 3:0.7,7:0.3; "
           "found '",
           line.substr(0, 80), "'");
    if (const int32_t label = largest_label(photo); !classes.empty() && label >= std::ssize(classes))
      fail(path, ":", number, ": label ", label, ", but there are ", classes.size(), " classes, 0 to ",
           classes.size() - 1);
    std::error_code missing;
    const auto bytes = fs::file_size(fs::path(sources.root) / photo.name, missing);
    photo.bytes = missing ? 0 : bytes;
    most = std::max(most, largest_label(photo));
    sources.photos.push_back(std::move(photo));
  }
  if (sources.photos.empty()) fail(path, " names no images");
  if (has_targets(sources)) check_named_once(sources, path);
  if (most >= kMostNumberedClasses) fail(path, ": label ", most, " is too large; labels count the classes from 0");
  number_classes(sources, path);
  return sources;
}

bool has_targets(const PhotoSources& sources) {
  return std::ranges::any_of(sources.photos, [](const PhotoSource& photo) { return !photo.targets.empty(); });
}

void check_named_once(const PhotoSources& sources, const std::string& of) {
  std::set<std::string> names;
  for (const PhotoSource& photo : sources.photos)
    if (!names.insert(photo.name).second)
      fail(of, " has '", photo.name, "' twice; write all labels of an image in one line, as in 3,7");
}

void number_classes(PhotoSources& sources, const std::string& list) {
  int32_t most = -1;
  for (const PhotoSource& photo : sources.photos) most = std::max(most, largest_label(photo));
  for (int32_t label = static_cast<int32_t>(sources.classes.size()); label <= most; ++label)
    sources.classes.push_back(std::to_string(label));
  note_classes_without_images(sources, list);
}

PhotoFiles::PhotoFiles(const PhotoSources& sources) : sources_(sources) {
  for (const std::string& path : sources.archives)
    if (!archives_.emplace_back(path).is_open()) fail("cannot read ", path, ": ", std::strerror(errno));
}

std::string PhotoFiles::read(const PhotoSource& source) const {
  if (source.archive >= 0) {
    std::string part = read_part(archives_[source.archive], source.offset, source.bytes);
    return sources_.records ? image_of_record(part) : part;
  }
  const InputFile file((fs::path(sources_.root) / source.name).string());
  if (!file.is_open()) throw BadPhoto(concat("cannot be read: ", std::strerror(errno)));
  if (file.size() < 0) throw BadPhoto("no regular file");
  return read_part(file, 0, file.size());
}

}  // namespace owt
