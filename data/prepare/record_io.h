// MXNet's RecordIO files of labelled images: FILE.rec, and FILE.idx with lines `key<TAB>offset`.
//
// A record is one part or several. A part is the number 0xced7230a, a word with its kind in the upper 3 bits (0 whole
// record, 1 first, 2 middle, 3 last part) and its length in the others, its content, and zeros up to a multiple of 4
// bytes. The content was cut where it had that number, which is left out. It is a header, and the file of an image:
//   flag u32, label f32, id u64, id2 u64; if flag > 0, `flag` labels f32, which count instead of `label`
// Numbers are little-endian. The key of a record is the key of its offset in FILE.idx, or without that file its id.
//
// In InsightFace's sets a record with key 0 and without an image has the labels n and m: images have the keys 1 to
// n - 1, and records from n to m - 1 are ranges of the keys of one identity, which are not needed here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/prepare/photo_sources.h"

namespace owt {

struct ImageRecord {
  uint64_t key = 0;
  int32_t label = 0;               // the first one
  uint64_t offset = 0, bytes = 0;  // place of all its parts in the file
};

// The records of images in the order of the file. index: path of the index; empty: none. Reads headers only. Throws
// Error for a damaged file or index, with the place, for an index of another file, for labels that are no integers from
// 0 to 2^24 - 1, and if there are no images.
std::vector<ImageRecord> image_records(const std::string& path, const std::string& index);

// The image file in the bytes of a record. Throws BadPhoto if they are damaged.
std::string image_of_record(std::string_view bytes);

// The images of FILE.rec with the index beside it, if there is one. classes, errors: as list_sources().
PhotoSources record_sources(const std::string& path, const std::vector<std::string>& classes);

}  // namespace owt
