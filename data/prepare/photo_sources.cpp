#include "data/prepare/photo_sources.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "data/photos/photo.h"
#include "src/core/check.h"
#include "src/core/files.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLargestFile = uint64_t{1} << 30;
constexpr int32_t kSeveral = -2;

bool has_control_characters(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

// A line of classes.txt.
void check_class_line(const std::string& line) {
  const size_t tab = line.find('\t');
  if (line.empty() || tab == 0) fail("a class has no name");
  if (has_control_characters(class_key(line)) ||
      (tab != std::string::npos && has_control_characters(line.substr(tab + 1))))
    fail("the class '", line, "' has control characters in its name");
}

std::vector<std::string> class_folders(const fs::path& dir) {
  std::error_code error;
  if (!fs::is_directory(dir, error)) fail("no folder ", dir.string());
  std::vector<std::string> classes;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (name[0] == '.') continue;
    if (entry.is_directory()) classes.push_back(name);
    if (!entry.exists() && !entry.path().has_extension())
      fail(entry.path().string(), " is a link that leads nowhere, perhaps to the folder of a class; mend or remove it");
  }
  for (const std::string& key : classes)
    if (has_control_characters(key)) fail(dir.string(), ": the folder '", key, "' has control characters in its name");
  if (classes.empty()) fail(dir.string(), " holds no folders; wanted one per class, with its images in it");
  std::sort(classes.begin(), classes.end());
  return classes;
}

// Adds the photos in and under a folder; links are followed.
class FolderPhotos {
 public:
  FolderPhotos(PhotoSources& sources, int32_t label) : sources_(sources), label_(label) {}

  void add_folder(const fs::path& folder) {
    const fs::path real = fs::canonical(folder);
    // A link to a folder that it lies in has no end.
    if (std::find(within_.begin(), within_.end(), real) != within_.end()) return;
    within_.push_back(real);
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (entry.path().filename().string()[0] != '.') add(entry);
    within_.pop_back();
  }

 private:
  void add(const fs::directory_entry& entry) {
    if (entry.is_directory()) return add_folder(entry.path());
    const std::string name = entry.path().lexically_relative(sources_.root).generic_string();
    const bool dangling = !entry.exists();  // a link; of what it led to only its name tells
    if (named_like_photo(name) && (entry.is_regular_file() || dangling))
      sources_.photos.push_back({.name = name, .label = label_, .bytes = dangling ? 0 : entry.file_size()});
    else if (dangling && !entry.path().has_extension())
      fail(entry.path().string(), " is a link that leads nowhere, perhaps to a folder of images; mend or remove it");
    else
      ++sources_.passed_over;
  }

  PhotoSources& sources_;
  const int32_t label_;
  std::vector<fs::path> within_;
};

void add_class_photos(PhotoSources& sources, int32_t label) {
  const auto first = static_cast<std::ptrdiff_t>(sources.photos.size());
  FolderPhotos(sources, label).add_folder(fs::path(sources.root) / sources.classes[static_cast<size_t>(label)]);
  std::sort(sources.photos.begin() + first, sources.photos.end(),
            [](const PhotoSource& a, const PhotoSource& b) { return a.name < b.name; });
}

// Takes a line `path label` apart; false where it is none.
bool parse_list_line(const std::string& line, std::string& path, int32_t& label) {
  const size_t last = line.find_last_not_of(" \t\r");
  const size_t blank = last == std::string::npos ? last : line.find_last_of(" \t", last);
  if (blank == std::string::npos) return false;
  const char *begin = line.data() + blank + 1, *end = line.data() + last + 1;
  const auto [rest, error] = std::from_chars(begin, end, label);
  if (error != std::errc() || rest != end || label < 0) return false;
  const size_t path_end = line.find_last_not_of(" \t", blank);
  if (path_end == std::string::npos) return false;
  path = line.substr(0, path_end + 1);
  return true;
}

std::string read_part(int file, uint64_t offset, uint64_t bytes) {
  if (bytes > kLargestFile) throw BadPhoto(concat(bytes, " bytes, more than a gigabyte"));
  std::string content(bytes, '\0');
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = ::pread(file, content.data() + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw BadPhoto(concat("cannot be read: ", std::strerror(errno)));
    if (got == 0) throw BadPhoto("cannot be read: it ends early");
    done += static_cast<size_t>(got);
  }
  return content;
}

struct File {
  explicit File(const std::string& path) : descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (descriptor >= 0) ::close(descriptor);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int descriptor;
};

}  // namespace

bool named_like_photo(const std::string& name) {
  std::string ending = fs::path(name).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr const char* kEndings[] = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff"};
  return std::find(std::begin(kEndings), std::end(kEndings), ending) != std::end(kEndings);
}

PhotoSources folder_sources(const std::string& dir) try {
  PhotoSources sources{.root = dir, .classes = class_folders(dir)};
  for (size_t label = 0; label < sources.classes.size(); ++label)
    add_class_photos(sources, static_cast<int32_t>(label));
  if (sources.photos.empty())
    fail(dir, " holds no images in the folders of its classes (jpg, jpeg, png, bmp, webp, tif, tiff)");
  return sources;
} catch (const fs::filesystem_error& e) {
  fail("cannot read ", dir, ": ", e.what());
}

PhotoSources list_sources(const std::string& path, const std::string& root, const std::vector<std::string>& classes) {
  PhotoSources sources{.root = root.empty() ? fs::path(path).parent_path().string() : root, .classes = classes};
  int32_t most = -1;
  int64_t number = 0;
  for (const std::string& line : text_lines(path)) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    PhotoSource photo;
    if (!parse_list_line(line, photo.name, photo.label))
      fail(path, ":", number, ": wanted a path and a label, an integer from 0; found '", line.substr(0, 80), "'");
    if (!classes.empty() && photo.label >= static_cast<int64_t>(classes.size()))
      fail(path, ":", number, ": label ", photo.label, ", but there are ", classes.size(), " classes, 0 to ",
           classes.size() - 1);
    std::error_code missing;
    const auto bytes = fs::file_size(fs::path(sources.root) / photo.name, missing);
    photo.bytes = missing ? 0 : bytes;
    most = std::max(most, photo.label);
    sources.photos.push_back(std::move(photo));
  }
  if (sources.photos.empty()) fail(path, " names no images");
  constexpr int32_t kMostClasses = 1 << 20;
  if (most >= kMostClasses) fail(path, ": label ", most, " is too large; labels count the classes from 0");
  for (int32_t label = static_cast<int32_t>(sources.classes.size()); label <= most; ++label)
    sources.classes.push_back(std::to_string(label));
  return sources;
}

PhotoFiles::PhotoFiles(const PhotoSources& sources) : sources_(sources) {
  for (const std::string& path : sources.archives) {
    archives_.push_back(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (archives_.back() < 0) fail("cannot read ", path, ": ", std::strerror(errno));
  }
}

PhotoFiles::~PhotoFiles() {
  for (const int file : archives_)
    if (file >= 0) ::close(file);
}

std::string PhotoFiles::read(const PhotoSource& source) const {
  if (source.archive >= 0)
    return read_part(archives_[static_cast<size_t>(source.archive)], source.offset, source.bytes);
  const File file((fs::path(sources_.root) / source.name).string());
  struct stat status {};
  if (file.descriptor < 0 || ::fstat(file.descriptor, &status) != 0)
    throw BadPhoto(concat("cannot be read: ", std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) throw BadPhoto("no regular file");
  return read_part(file.descriptor, 0, static_cast<uint64_t>(status.st_size));
}

std::string class_key(const std::string& line) { return line.substr(0, line.find('\t')); }

ClassLabels::ClassLabels(const std::vector<std::string>& classes) {
  for (size_t i = 0; i < classes.size(); ++i)
    if (const auto [at, added] = labels_.emplace(class_key(classes[i]), static_cast<int32_t>(i)); !added)
      at->second = kSeveral;
}

int32_t ClassLabels::of(const std::string& key) const {
  const auto found = labels_.find(key);
  if (found == labels_.end()) return -1;
  if (found->second == kSeveral) fail("several classes are called '", key, "'");
  return found->second;
}

std::vector<std::string> with_words(std::vector<std::string> keys, const std::vector<std::string>& names) {
  std::map<std::string, std::string> words;
  for (const std::string& key : keys) words[class_key(key)];
  for (const std::string& line : names) {
    size_t end = line.size();
    while (end != std::string::npos && end > 0 && !words.contains(line.substr(0, end)))
      end = line.find_last_of(" \t", end - 1);
    if (end == std::string::npos || end == 0) continue;
    const size_t begin = line.find_first_not_of(" \t", end);
    if (begin == std::string::npos) continue;
    std::string& there = words[line.substr(0, end)];
    if (!there.empty() && there != line.substr(begin)) fail("two lines of names for class '", line.substr(0, end), "'");
    there = line.substr(begin);
  }
  for (std::string& key : keys)
    if (const std::string& there = words[class_key(key)]; !there.empty()) key = class_key(key) + "\t" + there;
  return keys;
}

void agree_on_classes(PhotoSources& sources, const std::vector<std::string>& lines, std::vector<std::string>& classes,
                      const std::string& path) {
  if (classes.empty()) {
    for (const std::string& line : lines) check_class_line(line);
    sources.classes = classes = lines;
  }
  if (sources.classes == classes) return;
  const ClassLabels labels(classes);
  for (PhotoSource& photo : sources.photos) {
    const std::string key = class_key(sources.classes[static_cast<size_t>(photo.label)]);
    photo.label = labels.of(key);
    if (photo.label < 0)
      fail("class '", key, "' of ", photo.name, " is not in ", path, ", whose lines are a class or a class, a tab and ",
           "words; prepare the split that has all classes first, or the only split with --force");
  }
  sources.classes = classes;
}

}  // namespace owt
