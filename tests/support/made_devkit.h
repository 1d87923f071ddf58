// Generates the meta.mat of a development kit: a MATLAB 5 file with a struct array "synsets".
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace owt {

inline std::string mat_word(uint32_t value, int bytes = 4) {  // little-endian
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

inline std::string mat_element(uint32_t type, const std::string& data) {
  if (data.size() <= 4 && !data.empty() && type != 14)  // size and type share a word
    return mat_word(type, 2) + mat_word(static_cast<uint32_t>(data.size()), 2) + data +
           std::string(4 - data.size(), '\0');
  return mat_word(type) + mat_word(static_cast<uint32_t>(data.size())) + data +
         std::string((8 - data.size() % 8) % 8, '\0');
}
inline std::string mat_matrix(uint32_t kind, uint32_t rows, uint32_t columns, const std::string& name,
                              const std::string& rest) {
  return mat_element(14, mat_element(6, mat_word(kind) + mat_word(0)) +
                             mat_element(5, mat_word(rows) + mat_word(columns)) + mat_element(1, name) + rest);
}
inline std::string mat_text(const std::string& text) {  // in UTF-16, like MATLAB
  std::string wide;
  for (const char c : text) wide += std::string{c, '\0'};
  return mat_matrix(4, 1, static_cast<uint32_t>(text.size()), "", mat_element(4, wide));
}
inline std::string mat_single(float value) {
  return mat_matrix(6, 1, 1, "", mat_element(7, std::string(reinterpret_cast<const char*>(&value), sizeof value)));
}
inline std::string mat_number(uint32_t value) {  // a double, stored as the smallest integer type that can hold it
  return mat_matrix(6, 1, 1, "", value < 256 ? mat_element(2, mat_word(value, 1)) : mat_element(4, mat_word(value, 2)));
}

using MadeSynset = std::tuple<uint32_t, std::string, std::string>;  // id, WNID, words
inline std::string made_meta_mat(const std::vector<MadeSynset>& synsets,
                                 std::string (*deflate)(const std::string&) = nullptr) {
  constexpr size_t kNameBytes = 20;
  std::string names;
  for (std::string name : {"ILSVRC2012_ID", "WNID", "words", "num_children"}) {
    name.resize(kNameBytes);
    names += name;
  }
  std::string cells = mat_element(5, mat_word(kNameBytes)) + mat_element(1, names);
  for (const auto& [id, wnid, words] : synsets)
    cells += mat_number(id) + mat_text(wnid) + mat_text(words) + mat_number(0);
  const std::string other = mat_matrix(6, 1, 1, "version", mat_element(2, "\5"));
  const std::string all = mat_matrix(2, static_cast<uint32_t>(synsets.size()), 1, "synsets", cells);
  std::string header = "MATLAB 5.0 MAT-file, made by a test";
  header.resize(124, ' ');
  header += std::string("\0\1IM", 4);
  if (!deflate) return header + other + all;
  const std::string zipped = deflate(all);
  return header + other + mat_word(15) + mat_word(static_cast<uint32_t>(zipped.size())) + zipped;
}

}  // namespace owt
