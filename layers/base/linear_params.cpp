#include "layers/base/linear_params.h"

#include "src/system/check.h"

namespace owt {
namespace {

// Must run before the extents are multiplied as integers.
void check_size(const Shape& shape) {
  double elements = 1;
  for (int i = 0; i < shape.rank(); ++i) elements *= static_cast<double>(shape[i]);
  if (elements > 0x1p40)
    fail("its weight of ", shape, " is larger than any memory; use fewer outputs or a smaller input");
}

}  // namespace

std::vector<Param> read_linear_params(const LayerSpec& spec, const LinearWeight& extents) {
  check_size(extents.file_shape);
  Param weight;
  weight.name = spec.name + ".weight";
  weight.full_shape = extents.full_shape;
  weight.file_shape = extents.file_shape;
  weight.part = extents.part;
  weight.columns = extents.inputs;
  weight.fan_in = extents.fan_in;
  weight.fan_out = extents.fan_out;
  weight.init = extents.init;
  read_multipliers(spec.config, weight);
  if (!extents.may_have_bias) return {weight};

  Param bias;
  bias.name = spec.name + ".bias";
  bias.full_shape = bias.file_shape = {extents.full_shape.rows()};
  bias.part = extents.part;
  if (extents.inputs && extents.inputs->begin > 0) bias.part.begin = bias.part.end;
  bias.fan_in = extents.fan_in;
  bias.fan_out = extents.fan_out;
  if (spec.config.is_table("bias")) {
    Config table = spec.config.table("bias");
    read_multipliers(table, bias);
    table.finish("bias");
  } else if (!spec.config.boolean("bias", true)) {
    return {weight};
  }
  return {weight, bias};
}

}  // namespace owt
