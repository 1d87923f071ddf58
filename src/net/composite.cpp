#include "src/net/composite.h"

#include <algorithm>
#include <set>

#include "src/core/row_groups.h"
#include "src/system/check.h"

namespace owt {

void Composite::add_branch(const LayerSpec& spec, Config& table, const std::string& key, const std::string& prefix) {
  std::vector<std::unique_ptr<Layer>> layers;
  Shape batch = spec.in.batch_of(1);
  for (Config& layer : table.tables(key)) {
    layer.call(concat(spec.config.what(), ", ", key));
    const std::string name = prefix + layer.string("name");
    layers.push_back(make_layer({name, layer, batch.row()}, types_));
    batch = layers.back()->out_shape(batch);
  }
  branches_.emplace_back(std::move(layers), spec.in);
}

void Composite::check_names(const LayerSpec& spec, const std::string& key) const {
  std::set<std::string> names;
  for (const Net& branch : branches_)
    for (int64_t i = 0; i < branch.size(); ++i)
      if (!names.insert(branch.layer(i).name()).second)
        spec.config.error(key, concat("there are two layers called '", branch.layer(i).name(), "'"));
}

void Composite::check_input(const Shape& in) const {
  if (in.row() != in_) fail("layer '", name(), "' was made for rows of ", in_, ", not ", in.row());
}

double Composite::flops(const Shape& in) const {
  double sum = 0;
  for (const Inner& each : inner(in)) sum += each.layer->flops(each.in);
  return sum;
}

std::vector<Param*> Composite::params() {
  std::vector<Param*> all;
  for (const Net& branch : branches_)
    for (Param* param : branch.params()) all.push_back(param);
  return all;
}

int64_t Composite::row_group() const {
  int64_t group = 1;
  for (const Net& branch : branches_)
    for (int64_t i = 0; i < branch.size(); ++i) group = common_group(group, branch.layer(i).row_group());
  return group;
}

std::string Composite::why_not_canonical() {
  for (const Net& branch : branches_)
    for (int64_t i = 0; i < branch.size(); ++i)
      if (const std::string why = branch.layer(i).why_not_canonical(); !why.empty())
        return concat("has layer '", branch.layer(i).name(), "', which ", why);
  return "";
}

std::vector<int64_t> Composite::step_sums(Phase phase, bool wants_dx) {
  std::vector<int64_t> all;
  for (size_t b = branches_.size(); b-- > 0;) {
    bool wanted = wants_dx;
    for (int64_t i = 0; i < branches_[b].size(); ++i) {
      Layer& layer = branches_[b].layer(i);
      const std::vector<int64_t> of_layer = layer.step_sums(phase, wanted);
      all.insert(all.end(), of_layer.begin(), of_layer.end());
      wanted = wanted || layer.learns();
    }
  }
  if (phase == Phase::kBackward) std::reverse(all.begin(), all.end());
  return all;
}

std::vector<Layer::Inner> Composite::inner(const Shape& in) const {
  std::vector<Inner> all;
  for (const Net& branch : branches_) {
    Shape batch = in;
    for (int64_t i = 0; i < branch.size(); ++i) {
      all.push_back({&branch.layer(i), batch, i == 0, branch.in_place(i)});
      batch = branch.layer(i).out_shape(batch);
    }
  }
  return all;
}

int64_t Composite::scratch_bytes(const Shape& in, const Compute& on) const {
  int64_t largest = 0, deepest = 0;
  for (const Inner& each : inner(in)) {
    largest = std::max({largest, each.in.elements(), each.layer->out_shape(each.in).elements()});
    deepest = std::max(deepest, each.layer->scratch_bytes(each.in, on));
  }
  const int64_t gradients = out_shape(in).elements() + in.elements() + 2 * largest;
  return gradients * size_of(activation_type(on.precision)) + deepest;
}

}  // namespace owt
