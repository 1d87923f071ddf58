// The files of a prepared data set, and the index of each of its shards.
//
//   DIR/classes.txt             one line per class, line i names label i: its key (a synset id), then optionally a tab
//                               and words
//   DIR/prepare.lock            empty; held while owt prepare works on the data set
//   DIR/train, DIR/val          the two splits, each with
//     000000.tar, 000001.tar    shards in WebDataset's convention: for record k 00000k.jpg and 00000k.cls (the label as
//                               decimal digits); k increases through all shards of the split, and skips the numbers of
//                               sources that were left out
//     000000.index, ...         the index of the shard with the same number; its format is below
//     dataset.json              written last: a split without it is incomplete
//     skipped.txt               the sources left out: path, tab, reason; while the split is incomplete, one file per
//                               shard, 000000.skipped
//     prepare.json              its sources and settings, which owt prepare compares
//     prepare.lock              empty; held while owt prepare works on the split
//     stats.json                colours of the training images: from owt prepare, updated by owt prepare stats
//     shards.txt                only if the shards come from another program and have other names: a line for each,
//                               NAME for NAME.tar and NAME.index
//
// Index file, little-endian: the 8 bytes "OWTSHARD"; u32 version (1); u32 records; u64 bytes of the tar file; u64 bytes
// of the names; then per record u64 offset, u64 checksum, u32 bytes, u32 height, u32 width, i32 label, u32 bytes of its
// name, u32 zero; the names one after the other; u64 xxHash64 of all that precedes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace owt {

struct ShardRecord {
  uint64_t offset = 0;    // offset of the JPEG file in the tar file
  uint64_t checksum = 0;  // xxHash64 of the JPEG file
  uint32_t bytes = 0;     // size of the JPEG file
  uint32_t height = 0, width = 0;
  int32_t label = 0;
  std::string name{};  // its source's path; no control characters

  bool operator==(const ShardRecord&) const = default;
};

struct ShardIndex {
  uint64_t tar_bytes = 0;
  std::vector<ShardRecord> records;

  bool operator==(const ShardIndex&) const = default;
};

std::string shard_index_bytes(const ShardIndex& index);
// Throws Error naming `path` if the bytes are no index, are damaged, or place a record outside the tar file.
ShardIndex parse_shard_index(std::string_view bytes, const std::string& path);

constexpr const char* kShardNames = "shards.txt";
std::string shard_file_name(int64_t shard, const std::string& suffix);  // "000012.tar" for (12, ".tar")

}  // namespace owt
