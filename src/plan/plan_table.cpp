#include "src/plan/plan_table.h"

#include <algorithm>
#include <numeric>

#include "src/plan/back_part.h"
#include "src/plan/plan_bytes.h"
#include "src/plan/plan_rows.h"
#include "src/system/config.h"
#include "src/system/log.h"

namespace owt {
namespace {

std::string megabytes(int64_t bytes) {
  if (bytes == 0) return "-";
  return format("{:.{}f}", static_cast<double>(bytes) / 1e6, bytes < 100'000 ? 4 : 2);
}

std::string shard(const LayerPlan& layer) {
  if (layer.layout != Layout::kFeature) return "whole";
  const std::vector<Slice>& parts = layer.by_inputs() ? layer.inputs : layer.parts;
  const int64_t most = parts.front().size(), least = parts.back().size();
  const std::string part = most == least ? std::to_string(most) : format("{}-{}", least, most);
  return layer.by_inputs() ? format("in {} of {}", part, layer.in.elements())
                           : format("{} of {}", part, layer.columns_out());
}

std::string steps_of(const Transfer& transfer, const Plan& plan) {
  if (transfer.every == 1) return "";
  if (transfer.every == 0) return format(" in the first {:g} epochs", plan.request.average_from);
  return format(" every {} steps", transfer.every);
}

// The columns of all ranks that a training step computes, as a fraction of all.
double sampled_share(const LayerPlan& at) {
  if (at.sampled.empty()) return 1;
  const auto columns = std::accumulate(at.sampled.begin(), at.sampled.end(), int64_t{0});
  return static_cast<double>(columns) / static_cast<double>(at.columns_out());
}

std::string sample_text(const Plan& plan) {
  const LayerPlan& last = plan.layers.back();
  if (last.sampled.empty()) return "";
  return format("classes are sampled with rate {:g}: at most {} of {} of a worker take part in a step",
                plan.request.loss.sample, last.sampled.front(),
                last.parts.empty() ? last.columns_out() : last.parts.front().size());
}

// Adds a layer without a learning parameter; of a composite layer that partly learns, the frozen layers inside it.
void add_frozen(const LayerPlan& at, std::vector<std::string>& names) {
  if (!at.params.empty() && !at.learns()) return names.push_back(at.name);
  for (const LayerPlan& inner : at.inner) add_frozen(inner, names);
}

}  // namespace

std::string boundary_name(const Plan& plan) { return plan.split() ? plan.layer(plan.boundary).name : ""; }

std::string unsplit_text(const Plan& plan) {
  if (plan.split() || !facts_of(plan.request.strategy).splits()) return "";
  return plan.ranks() == 1 ? "one worker has nothing to split" : "the model has no layer that it splits";
}

std::vector<std::string> plan_notes(const Plan& plan) {
  std::vector<std::string> notes;
  if (const auto note = acting_strategy(plan).note) notes.push_back(note(plan));
  if (plan.averages())
    notes.push_back(
        format("each worker trains on its own{}; weights and the optimizer's states{} are averaged every {} steps",
               plan.synchronizes() ? format(" from epoch {:g} on", plan.request.average_from + 1) : "",
               plan.split() ? format(" before {}", boundary_name(plan)) : "", plan.request.average_every));
  if (plan.request.bf16_transport && plan.ranks() > 1) notes.emplace_back("activations and gradients are sent as bf16");
  if (plan.ranks() > 1 && !plan.split() && splits_dense(plan.request.strategy))
    notes.emplace_back("the model has no dense layer to split");
  std::erase(notes, "");
  return notes;
}

std::string frozen_text(const Plan& plan) {
  std::vector<std::string> names;
  int64_t parameters = 0, trained = 0;
  for (const LayerPlan& at : plan.layers) {
    add_frozen(at, names);
    parameters += at.parameters;
    trained += at.trained;
  }
  if (names.empty()) return "";
  return format("frozen: {}; {:.2f} M of {:.2f} M parameters are trained", joined(names),
                static_cast<double>(trained) / 1e6, static_cast<double>(parameters) / 1e6);
}

std::string plan_table(const Plan& plan) {
  const StepRows step = rows_of(plan, plan.request.step_rows);
  const auto rounds = step.count_rounds();
  std::string text = format(
      "{} on {} worker{} under {}, {} rows per step ({} per worker), {}{} round{}, dense update every {}\n", plan.model,
      plan.ranks(), plan.ranks() == 1 ? "" : "s", name_of(plan.request.strategy), plan.request.step_rows, step.text(),
      plan.request.slices > 1 ? format("{} micro-batches, ", plan.request.slices) : "", rounds, rounds == 1 ? "" : "s",
      plan.request.dense_update == DenseUpdate::kStep ? "step" : "round");
  if (plan.averages())
    text += format("weights{} averaged every {} steps{}; bytes per step are the mean over these steps\n",
                   plan.split() ? concat(" before ", boundary_name(plan)) : "", plan.request.average_every,
                   plan.synchronizes() ? format(" after {:g} epochs", plan.request.average_from) : "");
  if (const auto headline = acting_strategy(plan).headline) text += headline(plan) + "\n";
  if (const std::string frozen = frozen_text(plan); !frozen.empty()) text += frozen + "\n";
  if (const std::string sample = sample_text(plan); !sample.empty()) text += sample + "\n";
  text += format("{:<16} {:<16} {:>12} {:<11} {:>14} {:>11} {:>11} {:>10}\n", "layer", "type", "output", "layout",
                 "part", "weights MB", "MB/worker", "GFLOP/step");
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerPlan& at = plan.layers[i];
    if (&at == seam_of(plan)) text += "-- boundary --\n";
    text += format("{:<16} {:<16} {:>12} {:<11} {:>14} {:>11} {:>11} {:>10.3f}\n", at.name, at.type, at.out.str(),
                   at.place == kEveryPlace ? name_of(at.layout) : place_name(plan, at.place), shard(at),
                   megabytes(at.weight_bytes), megabytes(at.weight_bytes_on_rank()),
                   (at.flops_per_row + at.backward_flops_per_row) * sampled_share(at) *
                       static_cast<double>(plan.request.step_rows) / 1e9);
  }
  text += format("\n{:<28} {:<15} {:<26} {:>6} {:>14} {:>10}\n", "transfer", "collective", "layouts", "calls",
                 "bytes/worker", "MB/worker");
  for (const Transfer& t : plan.transfers)
    text += format("{:<28} {:<15} {:<26} {:>6} {:>14} {:>10}{}\n", t.name, name_of(t.collective),
                   format("{} -> {}", name_of(t.from), name_of(t.to)), t.calls, t.bytes, megabytes(t.bytes),
                   steps_of(t, plan));
  const int64_t sent = bytes_per_step(plan), busiest = busiest_link(plan);
  text +=
      format("{:<28} {:<15} {:<26} {:>6} {:>14} {:>10}\n",
             sent == busiest ? "sent per worker and step" : "sent per worker, mean", "", "", "", sent, megabytes(sent));
  text += format("{:<28} {:<15} {:<26} {:>6} {:>14} {:>10}\n", "one way in the busiest link", "", "", "", busiest,
                 megabytes(busiest));
  return text;
}

}  // namespace owt
