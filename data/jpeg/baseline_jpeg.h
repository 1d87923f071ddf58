// Decodes windows of baseline JPEG files without the rest of the image. Restart segments outside the window are not
// read; of blocks outside it only the Huffman codes are decoded. The pixels are bit for bit
// libjpeg's (JDCT_ISLOW, upsampling by repetition).
//
// Supports Huffman-coded 8-bit JPEG in one scan (ITU-T T.81, process 1), with one component, or with YCbCr whose chroma
// has full or half height and width. It is 1.9 times as fast as libjpeg-turbo's partial decoding of prepared
// photographs (docs/measurements/data.md): tables give run, size and code length at once, sixteen blocks are
// transformed side by side, and unneeded blocks are skipped.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/jpeg/huffman.h"
#include "data/jpeg/image_window.h"
#include "data/jpeg/jpeg_blocks.h"

namespace owt {

class BaselineJpeg {
 public:
  BaselineJpeg() = default;
  BaselineJpeg(const BaselineJpeg&) = delete;
  BaselineJpeg& operator=(const BaselineJpeg&) = delete;

  // Reads the header; the file must outlive the calls of decode(). False if the file is damaged, or is no JPEG of the
  // kind above.
  bool open(std::string_view file);
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }

  // A window within the image, as height x width x channels bytes: 3, RGB, or 1, the luma (of YCbCr its Y), for which
  // the chroma is not transformed. Throws BadPhoto for damaged data.
  void decode(const ImageWindow& window, int channels, uint8_t* pixels);

 private:
  // T.81's parameters of a component, and the memory for a decoded row of MCUs.
  struct Component {
    uint32_t id = 0;
    uint32_t h = 1, v = 1;  // sampling factors: its blocks per MCU, across and down
    uint32_t quantization_table = 0, dc_table = 0, ac_table = 0;
    uint32_t prediction = 0;           // PRED of the DC coefficient
    std::vector<BlockGroup> groups{};  // `v` rows of `groups_per_row`
    int64_t groups_per_row = 0;
    std::vector<uint8_t> pixels{};
    int64_t row_bytes = 0;
  };
  struct Table {
    std::array<uint8_t, 16> counts{};  // BITS
    std::vector<uint8_t> symbols{};    // HUFFVAL
    HuffmanTable codes{};
    bool good = false;
  };
  // An entropy-coded segment: the bytes [begin, end) of data_.
  struct Segment {
    size_t begin = 0, end = 0;
  };
  // The MCUs (minimum coded units) that a window touches; bottom and right are included.
  struct Mcus {
    int64_t top, bottom, left, right;
  };

  bool read_marker(uint32_t marker, std::string_view body);
  bool read_frame_header(std::string_view body);
  bool read_quantization_tables(std::string_view body);
  bool read_huffman_tables(std::string_view body);
  bool read_scan_header(std::string_view body);

  bool touches(const Mcus& mcus, int64_t begin, int64_t end) const;
  void find_segments(const Mcus& mcus);
  void allocate(const Mcus& mcus);
  void seek(int64_t mcu);
  // Decodes into this column of the window; < 0: skips the MCU.
  void decode_mcu(int64_t column);
  void decode_block(Component& component, int16_t* block);
  void transform_row();
  void convert_rows(const ImageWindow& window, const Mcus& mcus, int64_t mcu_row, int channels, uint8_t* pixels);

  std::string_view file_;
  size_t scan_ = 0;  // offset of the coded data
  int64_t height_ = 0, width_ = 0, h_max_ = 1, v_max_ = 1, mcus_across_ = 0, mcus_down_ = 0;
  int64_t restart_interval_ = 0;  // MCUs from one restart marker to the next
  std::array<Component, 3> all_components_;
  std::span<Component> components_;                                 // the file's
  std::span<Component> shown_;                                      // the components that are transformed
  std::array<std::array<uint16_t, kBlockSize>, 4> quantization_{};  // tables, in row order
  std::array<bool, 4> have_quantization_{};
  std::array<std::array<Table, 4>, 2> huffman_;  // tables of DC coefficients, of AC coefficients

  std::vector<uint8_t> data_;  // the required segments, without stuffing
  std::vector<Segment> segments_;
  BitReader bits_;
  int64_t segment_ = -1, next_mcu_ = 0;
  BlockGroup passed_over_{};
  std::vector<int16_t> red_, green_, blue_;
};

}  // namespace owt
