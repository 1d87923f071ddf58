// A prepared data set (data/shard_index.h) as images of one size.
//
// Tar files stay open, and a record is read when it is needed. They are not memory-mapped: mapped pages count as memory
// of the process, which would grow to the size of the data set, and a file that is shortened would end the program
// (SIGBUS).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/jpeg/jpeg_window.h"
#include "data/shard_index.h"
#include "src/system/config.h"
#include "src/system/input_file.h"

namespace owt {

// The part of an image that a view shows, as crop x crop pixels. Images are treated as if their short side were
// `short_side`. Evaluation shows a square of `crop` of these pixels at the centre or in a corner, training one at a
// random place. With `area`, training shows a part of random size and proportions at a random place (Szegedy et al.
// 2015, section 6; ten tries, then the middle, as torchvision).
struct CropSettings {
  int64_t crop = 224;            // [1, short_side]
  int64_t short_side = 256;      // >= 1
  std::array<double, 2> area{};  // fraction of the image, (0, 1], smallest and largest; zeros: a square of fixed size
  std::array<double, 2> aspect{3.0 / 4, 4.0 / 3};  // width by height, smallest and largest
  int channels = 3;                                // 3: RGB, equal for grey photos; 1: the luma

  // Reads the keys crop, short_side, area and aspect of a table with other keys, [data.augment]. Throws Error with file
  // and line.
  static CropSettings from(Config& table, int64_t otherwise_crop);

  bool operator==(const CropSettings&) const = default;
};

// The part of sample `index`, an image of height x width, that the view shows.
ImageWindow window_of(const CropSettings& settings, const View& view, int64_t index, int64_t height, int64_t width);

// The lines of the folder's classes.txt. Throws Error if it is missing or empty.
std::vector<std::string> shard_classes(const std::string& folder);

class ShardDataset : public Dataset {
 public:
  // folder: with classes.txt and the folders train and val. Throws Error naming a file that is missing, incomplete or
  // damaged; records are checked when they are read.
  ShardDataset(const std::string& folder, Split split, const CropSettings& settings);
  int64_t size() const override { return static_cast<int64_t>(records_.size()); }
  Shape image() const override { return {settings_.crop, settings_.crop, settings_.channels}; }
  int classes() const override { return static_cast<int>(class_lines_.size()); }
  int label(int64_t index) const override { return record(index).label; }
  std::vector<std::string> class_names() const override;
  std::vector<std::string> class_lines() const override { return class_lines_; }
  // Covers the indexes, which contain a checksum of every record.
  uint64_t checksum() const override;
  std::string name(int64_t index) const override;
  // Throws CorruptRecord for a record whose checksum, JPEG or size is wrong.
  void read(int64_t index, const View& view, uint8_t* pixels) const override;
  bool depends_on_view() const override { return true; }
  FileRow read_jpeg(int64_t index, const View& view, uint8_t* bytes) const override;
  int64_t most_pixels_of_files() const override;

  struct Stored {  // values of the index
    int64_t height, width, bytes;
  };
  Stored stored(int64_t index) const { return {record(index).height, record(index).width, record(index).bytes}; }

  // The whole image as height x width x 3 bytes. Throws the errors of read().
  struct WholeImage {
    int64_t height = 0, width = 0;
    std::vector<uint8_t> pixels{};
  };
  void read_whole(int64_t index, WholeImage& image) const;

 private:
  struct Shard {
    std::string path{};
    InputFile file{};
    int64_t first_record = 0;
    std::string names{};  // names of its records, concatenated
  };
  struct Record {  // a data set may have tens of millions
    uint64_t offset, checksum;
    uint32_t bytes, height, width;
    int32_t label;
    uint32_t shard, name;  // `name`: offset of the name
  };

  void open_shard(const std::string& base);
  const Record& record(int64_t index) const { return records_[index]; }
  // Its checksum is verified. Valid until the next call on the same thread.
  std::string_view file_of(int64_t index) const;
  [[noreturn]] void corrupt(int64_t index, const std::string& why) const;
  template <class Decode>
  void decode(int64_t index, const Decode& decode) const;

  CropSettings settings_;
  std::vector<std::string> class_lines_;
  std::vector<Shard> shards_;
  std::vector<Record> records_;
};

}  // namespace owt
