#include "layers/param.h"

#include <cmath>

#include "src/core/check.h"
#include "src/core/philox.h"
#include "src/core/threads.h"

namespace owt {
namespace {

// A rank-4 tensor kept as [o, h, w, c] is [o, c, h, w] in files. Calls visit(memory index, file index) for
// rows [0, rows).
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
  parallel_for(rows, std::max<int64_t>(1, (1 << 15) / std::max<int64_t>(per_row, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t o = begin; o < end; ++o)
                   for (int64_t p = 0; p < positions; ++p)
                     for (int64_t c = 0; c < channels; ++c)
                       visit(o * per_row + p * channels + c, o * per_row + c * positions + p);
               });
}

}  // namespace

Initializer Initializer::from(Config& config, const Initializer& otherwise) {
  if (!config.has("init")) {
    config.table("init");  // a known key all the same
    return otherwise;
  }
  Config table = config.table("init");
  const std::string type = table.word("type", {"constant", "gaussian", "uniform", "xavier", "msra"});
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
  } else {
    init.type = type == "xavier" ? Type::kXavier : Type::kMsra;
  }
  table.finish("init type '" + type + "'");
  return init;
}

void read_multipliers(Config& config, Param& param) {
  param.lr_mult = config.number("lr", 1.0, {.low = 0});
  param.decay_mult = config.number("decay", 1.0, {.low = 0});
  param.init = Initializer::from(config, param.init);
}

void Param::allocate() {
  if (!value.defined()) value = Tensor(shape());
  if (!grad.defined()) grad = Tensor(shape());
  grad_is_zero = true;
}

void Param::initialize(uint64_t seed) {
  allocate();
  const Philox random(seed, RandomStream::kInit, 0, name);
  const auto draw = [&](uint64_t element) -> float {
    switch (init.type) {
      case Initializer::Type::kConstant:
        return static_cast<float>(init.value);
      case Initializer::Type::kGaussian:
        return static_cast<float>(init.std) * random.normal(element);
      case Initializer::Type::kUniform:
        return static_cast<float>(init.low + (init.high - init.low) * random.uniform(element));
      case Initializer::Type::kXavier: {
        const double limit = std::sqrt(6.0 / static_cast<double>(fan_in + fan_out));
        return static_cast<float>(limit * (2.0 * random.uniform(element) - 1.0));
      }
      case Initializer::Type::kMsra:
        return static_cast<float>(std::sqrt(2.0 / static_cast<double>(fan_in))) * random.normal(element);
    }
    return 0;
  };
  float* out = value.data();
  const int64_t first = part.begin * full_shape.row_elements();
  for_each_place(full_shape, part.size(), [&](int64_t memory, int64_t file) {
    out[memory] = draw(static_cast<uint64_t>(first + file));
  });
  ++version;
}

void Param::to_file_order(const float* memory, float* file) const {
  for_each_place(full_shape, part.size(), [&](int64_t m, int64_t f) { file[f] = memory[m]; });
}

void Param::from_file_order(const float* file, float* memory) const {
  for_each_place(full_shape, part.size(), [&](int64_t m, int64_t f) { memory[m] = file[f]; });
}

}  // namespace owt
