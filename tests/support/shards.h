// Small prepared data sets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/photos/photo.h"
#include "data/prepare/tar.h"
#include "data/shard_index.h"
#include "src/core/philox.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "tests/support/temp_folder.h"

namespace owt {

// Smooth slopes with some noise; a different image for each number.
inline Photo made_photo(int64_t number, int64_t height, int64_t width) {
  const Philox random(static_cast<uint64_t>(number), RandomStream::kTest, 0, "photo");
  Photo photo{height, width, std::vector<uint8_t>(static_cast<size_t>(height * width * 3))};
  const auto slopes = random.uniforms(0), more = random.uniforms(1);
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c) {
        const auto place = static_cast<size_t>((y * width + x) * 3 + c);
        const float light = 60 +
                            120 * slopes[static_cast<size_t>(c)] * static_cast<float>(y) / static_cast<float>(height) +
                            70 * more[static_cast<size_t>(c)] * static_cast<float>(x) / static_cast<float>(width);
        photo.pixels[place] = static_cast<uint8_t>(light + 40 * (random.uniform(100 + place) - 0.5f));
      }
  return photo;
}

struct MadeShards {
  int64_t images = 6, images_per_shard = 4;
  int classes = 3;
  int64_t height = 40, width = 52;  // size of image i is this plus i in both directions
  JpegSettings jpeg{};
  // Makes the file of image i in place of `jpeg`.
  std::function<std::string(const Photo& photo, int64_t i)> file{};
};

// Writes DIR/train or DIR/val, and DIR/classes.txt. Image i is made_photo(i), has label i % classes and the name
// "made/i".
inline void write_split(const std::string& folder, const std::string& split, const MadeShards& made) {
  namespace fs = std::filesystem;
  const std::string part = folder + "/" + split;
  fs::create_directories(part);
  std::string classes;
  for (int c = 0; c < made.classes; ++c) classes += format("n{:08} class {}\n", c, c);
  write_bytes(folder + "/classes.txt", classes);
  int64_t shards = 0;
  for (int64_t first = 0; first < made.images; first += made.images_per_shard, ++shards) {
    TarWriter tar(part + "/" + shard_file_name(shards, ".tar"));
    ShardIndex index;
    for (int64_t i = first; i < std::min(made.images, first + made.images_per_shard); ++i) {
      const Photo photo = made_photo(i, made.height + i, made.width + i);
      const std::string jpeg = made.file ? made.file(photo, i) : jpeg_of(photo, made.jpeg);
      const auto label = static_cast<int32_t>(i % made.classes);
      const uint64_t offset = tar.add(format("{:06}.jpg", i), jpeg);
      tar.add(format("{:06}.cls", i), std::to_string(label));
      index.records.push_back({offset, checksum_of(jpeg), static_cast<uint32_t>(jpeg.size()),
                               static_cast<uint32_t>(photo.height), static_cast<uint32_t>(photo.width), label,
                               format("made/{}", i)});
    }
    index.tar_bytes = tar.close();
    write_bytes(part + "/" + shard_file_name(shards, ".index"), shard_index_bytes(index));
  }
  write_bytes(part + "/dataset.json",
              format("{{\"images\": {}, \"classes\": {}, \"shards\": {}}}\n", made.images, made.classes, shards));
}

// Flips one bit in the middle of the JPEG of a record.
inline void damage_record(const std::string& folder, const std::string& split, int64_t shard, size_t record) {
  const std::string base = folder + "/" + split + "/";
  const std::string index_path = base + shard_file_name(shard, ".index"),
                    tar_path = base + shard_file_name(shard, ".tar");
  const ShardRecord r = parse_shard_index(read_file(index_path), index_path).records.at(record);
  std::string tar = read_file(tar_path);
  char& byte = tar.at(r.offset + r.bytes / 2);
  byte = static_cast<char>(byte ^ 4);
  write_bytes(tar_path, tar);
}

}  // namespace owt
