#include "layers/linear_params.h"

namespace owt {

std::vector<Param> read_linear_params(const LayerSpec& spec, const LinearWeight& extents) {
  Param weight;
  weight.name = spec.name + ".weight";
  weight.full_shape = extents.full_shape;
  weight.file_shape = extents.file_shape;
  weight.part = extents.part;
  weight.columns = extents.inputs;
  weight.fan_in = extents.fan_in;
  weight.fan_out = extents.fan_out;
  weight.init.type = Initializer::Type::kXavier;
  read_multipliers(spec.config, weight);

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
