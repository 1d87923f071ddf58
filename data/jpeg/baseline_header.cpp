#include <algorithm>

#include "data/jpeg/baseline_jpeg.h"
#include "data/jpeg/jpeg_markers.h"

namespace owt {
namespace {

uint32_t byte_at(std::string_view bytes, size_t i) { return static_cast<uint8_t>(bytes[i]); }
uint32_t word_at(std::string_view bytes, size_t i) { return byte_at(bytes, i) << 8 | byte_at(bytes, i + 1); }

}  // namespace

bool BaselineJpeg::open(std::string_view file) {
  file_ = file;
  height_ = restart_interval_ = 0;
  have_quantization_ = {};
  for (auto& kind : huffman_)
    for (Table& table : kind) table.good = false;
  if (file.size() < 4 || word_at(file, 0) != 0xFFD8) return false;
  for (size_t at = 2; at + 4 <= file.size();) {
    if (byte_at(file, at) != 0xFF) return false;
    const uint32_t marker = byte_at(file, at + 1);
    const size_t bytes = word_at(file, at + 2);
    if (bytes < 2 || bytes > file.size() - at - 2) return false;
    const std::string_view body = file.substr(at + 4, bytes - 2);
    at += 2 + bytes;
    if (!read_marker(marker, body)) return false;
    if (marker == kSos) {
      scan_ = at;
      return true;
    }
  }
  return false;
}

bool BaselineJpeg::read_marker(uint32_t marker, std::string_view body) {
  switch (marker) {
    case kSof0:
      return height_ == 0 && read_frame_header(body);
    case kDqt:
      return read_quantization_tables(body);
    case kDht:
      return read_huffman_tables(body);
    case kSos:
      return read_scan_header(body);
    case kDri:
      if (body.size() != 2) return false;
      restart_interval_ = word_at(body, 0);
      return true;
    case kApp14:  // may say that the colours are not YCbCr
      return false;
    default:  // application data and comments
      return (marker >= 0xE0 && marker <= 0xEF) || marker == 0xFE;
  }
}

bool BaselineJpeg::read_frame_header(std::string_view body) {
  if (body.size() < 6 || byte_at(body, 0) != 8) return false;
  const size_t count = byte_at(body, 5);
  if ((count != 1 && count != 3) || body.size() != 6 + 3 * count) return false;
  components_ = std::span(all_components_).first(count);
  h_max_ = v_max_ = 1;
  for (size_t c = 0; c < count; ++c) {
    const size_t at = 6 + 3 * c;
    Component& component = components_[c];
    component.id = byte_at(body, at);
    component.h = byte_at(body, at + 1) >> 4;
    component.v = byte_at(body, at + 1) & 15;
    component.quantization_table = byte_at(body, at + 2);
    const uint32_t most = c == 0 ? 2 : 1;
    if (component.h < 1 || component.h > most || component.v < 1 || component.v > most ||
        component.quantization_table > 3)
      return false;
    if (count == 1) component.h = component.v = 1;          // T.81 defines a scan of one component so
    if (count == 3 && component.id != c + 1) return false;  // libjpeg guesses the colour space
    h_max_ = std::max<int64_t>(h_max_, component.h);
    v_max_ = std::max<int64_t>(v_max_, component.v);
  }
  height_ = word_at(body, 1);
  width_ = word_at(body, 3);
  mcus_across_ = parts_of(width_, kBlockSide * h_max_);
  mcus_down_ = parts_of(height_, kBlockSide * v_max_);
  return height_ > 0 && width_ > 0;
}

bool BaselineJpeg::read_quantization_tables(std::string_view body) {
  for (; !body.empty(); body.remove_prefix(1 + kBlockSize)) {
    const uint32_t table = byte_at(body, 0);  // the high half: 16-bit numbers
    if (table > 3 || body.size() < 1 + kBlockSize) return false;
    for (size_t k = 0; k < kBlockSize; ++k)
      quantization_[table][kZigzag[k]] = static_cast<uint16_t>(byte_at(body, 1 + k));
    have_quantization_[table] = true;
  }
  return true;
}

bool BaselineJpeg::read_huffman_tables(std::string_view body) {
  while (!body.empty()) {
    const uint32_t kind = byte_at(body, 0) >> 4, number = byte_at(body, 0) & 15;  // 0: DC, 1: AC
    if (kind > 1 || number > 3 || body.size() < 17) return false;
    std::array<uint8_t, 16> counts;
    std::copy_n(body.begin() + 1, counts.size(), counts.begin());
    size_t total = 0;
    for (const uint8_t count : counts) total += count;
    body.remove_prefix(17);
    if (total > 256 || body.size() < total) return false;
    Table& table = huffman_[kind][number];
    // Most files of a data set have the same tables; building them again would take a tenth of the time.
    const bool same = table.counts == counts && table.symbols.size() == total &&
                      std::equal(table.symbols.begin(), table.symbols.end(), body.begin());
    if (!same) {
      table.counts = counts;
      table.symbols.assign(body.begin(), body.begin() + total);
      if (!table.codes.build(counts, table.symbols, kind == 1)) {
        table.counts = {};
        table.symbols.clear();
        return false;
      }
    }
    table.good = true;
    body.remove_prefix(total);
  }
  return true;
}

bool BaselineJpeg::read_scan_header(std::string_view body) {
  const size_t count = components_.size();
  if (height_ == 0 || body.size() != 4 + 2 * count || byte_at(body, 0) != count) return false;
  for (size_t c = 0; c < count; ++c) {
    Component& component = components_[c];
    const uint32_t tables = byte_at(body, 2 + 2 * c);
    component.dc_table = tables >> 4;
    component.ac_table = tables & 15;
    if (byte_at(body, 1 + 2 * c) != component.id || component.dc_table > 3 || component.ac_table > 3) return false;
    if (!have_quantization_[component.quantization_table] || !huffman_[0][component.dc_table].good ||
        !huffman_[1][component.ac_table].good)
      return false;
  }
  if (restart_interval_ == 0) restart_interval_ = mcus_across_ * mcus_down_;
  return true;
}

}  // namespace owt
