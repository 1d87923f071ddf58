#include "src/mirror/mirrored.h"

#include <sstream>

#include "src/comm/on_host.h"
#include "src/system/check.h"

namespace owt {
namespace {

Region region_of_value(const Param& param) {
  const int64_t width = param.full_shape.row_elements();
  return Region::of(param.part, param.columns.value_or(Slice{0, width}), width);
}

// The elements of this rank's value that it updates.
Region region_of_state(const Param& param, const Slice& updated) {
  if (updated == Slice{0, param.shape().elements()}) return region_of_value(param);
  OWT_CHECK(!param.columns, param.name, ": columns of rows are not updated in shares");
  const int64_t first = param.part.begin * param.full_shape.row_elements();
  return Region::of({first + updated.begin, first + updated.end});
}

MirroredTensor tensor_of(const Param& param, const std::string& kind, const Region& region, const Tensor& values) {
  const int64_t elements = param.full_shape.elements();
  return {{concat(kind, ' ', param.name), elements, region}, param.full_shape, values.reshaped({values.elements()})};
}

// Parts as lines of text.
std::string to_text(const std::vector<MirroredPart>& parts) {
  std::ostringstream text;
  for (const auto& [name, elements, region] : parts)
    text << elements << ' ' << region.first << ' ' << region.length << ' ' << region.times << ' ' << region.stride
         << ' ' << name << '\n';
  return text.str();
}

std::vector<MirroredPart> parts_from(const std::string& text) {
  std::vector<MirroredPart> parts;
  std::istringstream lines(text);
  for (MirroredPart part;
       lines >> part.elements >> part.region.first >> part.region.length >> part.region.times >> part.region.stride;) {
    std::getline(lines.ignore(), part.name);
    parts.push_back(part);
  }
  return parts;
}

}  // namespace

std::vector<MirroredTensor> mirrored_tensors(const Mirrored& of) {
  std::vector<MirroredTensor> all;
  for (Param* param : of.model.params()) {
    const Region value = region_of_value(*param);
    all.push_back(tensor_of(*param, "weight", value, param->value));
    all.back().weight = param;
    if (WeightEma* averages = of.step.ema()) all.push_back(tensor_of(*param, "average", value, averages->of(*param)));
    if (param->role != ParamRole::kTrained) continue;
    const Slice updated = of.step.updated(*param);
    const Region region = region_of_state(*param, updated);
    const std::vector<Tensor>& states = of.optimizer.states(*param, updated);
    for (size_t i = 0; i < states.size(); ++i) all.push_back(tensor_of(*param, concat("state ", i), region, states[i]));
  }
  return all;
}

void MirroredTensor::set(const Slice& rows, const Tensor& on_host) {
  if (on_host.elements() == 0) return;
  const int64_t width = whole.row_elements();
  const Slice elements{rows.begin * width, rows.end * width};
  const int64_t first = part.region.offset_of(part.region.within(elements).front().begin);
  if (!weight) return values.part(first, {on_host.elements()}).copy_from(on_host);
  const int64_t each = weight->shape().row_elements();  // a rank has its columns of all elements of a row
  weight->set_rows(first / each, on_host.reshaped({on_host.elements() / each, each}));
}

std::vector<MirroredPart> parts_of(const std::vector<MirroredTensor>& tensors) {
  std::vector<MirroredPart> parts;
  for (const MirroredTensor& tensor : tensors) parts.push_back(tensor.part);
  return parts;
}

std::vector<std::vector<MirroredPart>> gather_parts(Communicator& comm, const std::vector<MirroredPart>& mine,
                                                    Device device) {
  std::vector<std::vector<MirroredPart>> all;
  for (const std::string& text : on_host::gather(comm, to_text(mine), device)) all.push_back(parts_from(text));
  return all;
}

}  // namespace owt
