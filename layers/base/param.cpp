#include "layers/base/param.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/core/bf16.h"
#include "src/core/philox.h"
#include "src/core/threads.h"
#include "src/system/check.h"

namespace owt {
namespace {

// A rank-4 tensor is [o, h, w, c] in memory and [o, c, h, w] in files. Calls visit(memory index, file index) for rows
// [0, rows).
template <class Visit>
void for_each_place(const Shape& full, int64_t rows, const Visit& visit) {
  const int64_t per_row = full.row_elements();
  if (full.rank() != 4) {
    parallel_for(rows * per_row, 1 << 15, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) visit(i, i);
    });
    return;
  }
  const int64_t positions = full[1] * full[2], channels = full[3];
  parallel_for(rows, std::max<int64_t>(1, (1 << 15) / std::max<int64_t>(per_row, 1)), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o)
      for (int64_t p = 0; p < positions; ++p)
        for (int64_t c = 0; c < channels; ++c) visit(o * per_row + p * channels + c, o * per_row + c * positions + p);
  });
}

// Sets rows of a convolution's weight, in file order [out, in, kh, kw], to copy the input with the row's index.
void pass_inputs_on(const Shape& full, const Slice& rows, float* in_file_order) {
  const int64_t positions = full[1] * full[2], channels = full[3], middle = full[1] / 2 * full[2] + full[2] / 2;
  for (int64_t o = rows.begin; o < std::min(rows.end, channels); ++o) {
    float* const row = in_file_order + (o - rows.begin) * channels * positions;
    std::fill_n(row, channels * positions, 0.0f);
    row[o * positions + middle] = 1;
  }
}

int64_t rows_of_piece(const Shape& tensor) {
  return std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, tensor.row_elements() * 4));
}

}  // namespace

std::vector<Slice> pieces_of(const Shape& tensor, const Slice& rows) {
  std::vector<Slice> pieces;
  const int64_t each = rows_of_piece(tensor);
  for (int64_t begin = rows.begin; begin < rows.end; begin += each)
    pieces.push_back({begin, std::min(begin + each, rows.end)});
  return pieces;
}

Slice common_part(const Slice& a, const Slice& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

int64_t largest_piece(const Shape& tensor) {
  return std::min(rows_of_piece(tensor), tensor.rows()) * tensor.row_elements();
}

Initializer Initializer::from(Config& config, const Initializer& otherwise) {
  if (!config.given("init")) return otherwise;
  Config table = config.table("init");
  const std::string type =
      table.word("type", {"constant", "gaussian", "uniform", "xavier", "msra", "dirac", "whitening"});
  Initializer init;
  if (type == "constant") {
    init.type = Type::kConstant;
    init.value = table.number("value");
  } else if (type == "gaussian") {
    init.type = Type::kGaussian;
    init.std = table.number("std", {.low = 0});
  } else if (type == "uniform") {
    init.type = Type::kUniform;
    init.low = table.number("low");
    init.high = table.number("high", {.low = init.low});
  } else if (type == "whitening") {
    init.type = Type::kWhitening;
    init.eps = table.number("eps", 5e-4, {.low = 0});
    init.images = table.integer("images", 5000, {.low = 1});
  } else {
    init.type = type == "xavier" ? Type::kXavier : type == "dirac" ? Type::kDirac : Type::kMsra;
    if (type == "msra") init.by_fan_out = table.word("fan", "in", {"in", "out"}) == "out";
  }
  table.finish("init type '" + type + "'");
  return init;
}

std::vector<Param*> pointers_to(std::span<Param> params) {
  std::vector<Param*> all;
  for (Param& param : params) all.push_back(&param);
  return all;
}

void read_multipliers(Config& config, Param& param) {
  param.lr_mult = config.number("lr", param.lr_mult, {.low = 0});
  param.decay_mult = config.number("decay", param.decay_mult, {.low = 0});
  param.init = Initializer::from(config, param.init);
  const bool of_conv = param.init.type == Initializer::Type::kDirac || param.init.type == Initializer::Type::kWhitening;
  if (of_conv && param.file_shape.rank() != 4)
    config.error("init", concat("'", param.name, "' is no weight of a convolution, which this 'init' is for"));
}

void Param::allocate(const Compute& on) {
  if (!value.defined()) value = Tensor(shape(), DType::kF32, on.device);
  if (!grad.defined() && keeps_grad && learns(role)) grad = Tensor(grad_shape(), grad_type, on.device);
  if (!copy16.defined() && has_copy16(on)) copy16 = Tensor(shape(), DType::kBF16, on.device);
  grad_is_zero = true;
}

void Param::set_rows(int64_t first, const Tensor& on_host) {
  const int64_t end = first + on_host.shape().rows();
  value.rows(first, end).copy_from(on_host);
  ++version;
  if (copy16.defined()) copy16.rows(first, end).copy_from(to_bf16(on_host));
}

void Param::initialize(uint64_t seed) {
  if (!value.defined()) allocate({});
  const Philox random(seed, RandomStream::kInit, 0, name);
  const bool normal = init.type == Initializer::Type::kGaussian || init.type == Initializer::Type::kMsra ||
                      init.type == Initializer::Type::kWhitening;
  double offset = 0, scale = 0;  // for standard normal numbers, or for uniform ones in [0, 1)
  switch (init.type) {
    case Initializer::Type::kConstant:
      offset = init.value;
      break;
    case Initializer::Type::kGaussian:
      scale = init.std;
      break;
    case Initializer::Type::kUniform:
      offset = init.low, scale = init.high - init.low;
      break;
    case Initializer::Type::kXavier:
      scale = 2 * std::sqrt(6.0 / static_cast<double>(fan_in + fan_out)), offset = -scale / 2;
      break;
    case Initializer::Type::kDirac:
      scale = 2 / std::sqrt(static_cast<double>(fan_in)), offset = -scale / 2;
      break;
    case Initializer::Type::kMsra:
    case Initializer::Type::kWhitening:
      scale = std::sqrt(2.0 / static_cast<double>(init.by_fan_out ? fan_out : fan_in));
      break;
  }
  for (const Slice& rows : pieces_of(full_shape, part)) {
    Tensor in_file_order(full_shape.with_rows(rows.size()));
    float* const out = in_file_order.data();
    const int64_t first = rows.begin * full_shape.row_elements();
    parallel_for(in_file_order.elements(), 1 << 12, [&](int64_t begin, int64_t end) {
      std::array<float, 4> four{};
      for (int64_t i = begin; i < end; ++i) {
        const uint64_t element = static_cast<uint64_t>(first + i);
        if (scale != 0 && (i == begin || element % 4 == 0))
          four = normal ? random.normals(element / 4) : random.uniforms(element / 4);
        out[i] = static_cast<float>(offset + scale * four[element % 4]);
      }
    });
    if (init.type == Initializer::Type::kDirac) pass_inputs_on(full_shape, rows, out);
    set_rows(rows.begin - part.begin, kept_of(rows.size(), out));
  }
}

Tensor Param::kept_of(int64_t count, const float* in_file_order) const {
  Tensor rows(full_shape.with_rows(count));
  from_file_order(count, in_file_order, rows.data());
  if (!columns) return rows;
  Tensor kept({count, columns->size()});
  const int64_t each = full_shape.row_elements(), width = columns->size();
  for (int64_t row = 0; row < count; ++row)
    std::copy_n(rows.data() + row * each + columns->begin, width, kept.data() + row * width);
  return kept;
}

void Param::to_file_order(int64_t rows, const float* memory, float* file) const {
  for_each_place(full_shape, rows, [&](int64_t m, int64_t f) { file[f] = memory[m]; });
}

void Param::from_file_order(int64_t rows, const float* file, float* memory) const {
  for_each_place(full_shape, rows, [&](int64_t m, int64_t f) { memory[m] = file[f]; });
}

}  // namespace owt
