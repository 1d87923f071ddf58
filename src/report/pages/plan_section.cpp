#include <algorithm>

#include "src/plan/plan.h"
#include "src/plan/plan_bytes.h"
#include "src/predict/memory_need.h"
#include "src/report/draw_net.h"
#include "src/report/pages/bars.h"
#include "src/report/pages/drawn_step.h"
#include "src/report/pages/sections.h"
#include "src/system/log.h"
#include "src/system/own_words.h"

namespace owt {
namespace {

constexpr int kMostRanks = 16;  // most ranks to draw

// The part of a layer on a rank: the range [begin, end) of its box.
struct Held {
  double begin = 0, end = 1;
  const char* kind = "";  // class of the style
};

double part_of(int64_t element, int64_t all) {
  return all > 0 ? static_cast<double>(element) / static_cast<double>(all) : 0;
}

Held held_by(const Plan& plan, const LayerPlan& at, int rank) {
  const int place = plan.place_of(rank);
  const auto of_group = static_cast<size_t>(place);
  if (!at.is_at(place)) return {0, 0, "none"};
  if (at.by_inputs())
    return {part_of(at.inputs[of_group].begin, at.inputs.back().end),
            part_of(at.inputs[of_group].end, at.inputs.back().end), "inputs"};
  if (!at.parts.empty())
    return {part_of(at.parts[of_group].begin, at.parts.back().end),
            part_of(at.parts[of_group].end, at.parts.back().end), "outputs"};
  return {0, 1, at.layout == Layout::kReplicated ? "all" : "rows"};
}

const char* words_of(const Held& held) {
  const std::string kind = held.kind;
  if (kind == "inputs") return "some of the inputs of all rows";
  if (kind == "outputs") return "some of the outputs of all rows";
  if (kind == "all") return "all of it, of all rows";
  return kind == "rows" ? "all of it, of its own rows" : "nothing";
}

std::string boxes_of(const Plan& plan, const LayerPlan& at) {
  std::string html;
  for (int rank = 0; rank < std::min(plan.ranks(), kMostRanks); ++rank) {
    const Held held = held_by(plan, at, rank);
    html += format(
        "<span class=\"box\" title=\"worker {}: {}\"><i class=\"{}\" style=\"left:{:.1f}%;width:{:.1f}%\"></i></span>",
        rank, words_of(held), held.kind, 100 * held.begin, 100 * (held.end - held.begin));
  }
  return html;
}

std::string transfer_line(const Transfer& transfer) {
  return format("<tr class=\"move\"><td colspan=\"4\">{}: {}, {} MB per worker</td></tr>\n", escaped(transfer.name),
                name_of(transfer.collective), escaped(aligned_number(static_cast<double>(transfer.bytes) / 1e6, 1)));
}

std::string transfers_before(const Plan& plan, const LayerPlan& at) {
  std::string html;
  for (const TransferId id : {at.transfers.input, at.transfers.input_gradient})
    if (id != kNoTransfer) html += transfer_line(plan.transfer(id));
  return html;
}

std::string transfers_behind(const Plan& plan, const LayerPlan& at) {
  std::string html;
  for (const TransferId id : {at.transfers.output, at.transfers.output_gradient})
    if (id != kNoTransfer) html += transfer_line(plan.transfer(id));
  return html;
}

std::string drawn_plan(const Plan& plan) {
  std::string html = format(
      "<div class=\"scroll\"><table class=\"plan\">\n<thead><tr><th scope=\"col\">layer</th><th "
      "scope=\"col\">output</th>"
      "<th scope=\"col\" class=\"n\">weights, MB</th><th scope=\"col\">workers "
      "0 to {}</th></tr></thead>\n<tbody>\n",
      std::min(plan.ranks(), kMostRanks) - 1);
  for (int64_t i = 0; i < std::ssize(plan.layers); ++i) {
    const LayerPlan& at = plan.layer(i);
    if (i == plan.boundary) html += "<tr class=\"boundary\"><td colspan=\"4\">boundary</td></tr>\n";
    html += transfers_before(plan, at);
    html +=
        format("<tr><td>{} <small>{}</small></td><td>{}</td><td class=\"n\">{}</td><td class=\"boxes\">{}</td></tr>\n",
               escaped(at.name), escaped(at.type), at.out.str(),
               at.weight_bytes > 0 ? escaped(aligned_number(static_cast<double>(at.weight_bytes) / 1e6, 1)) : "",
               boxes_of(plan, at));
    html += transfers_behind(plan, at);
  }
  for (const TransferId id : {plan.of_step.gradients, plan.of_step.gradient_copies, plan.of_step.weights,
                              plan.of_step.averages, plan.of_step.dense_gradients})
    if (id != kNoTransfer) html += transfer_line(plan.transfer(id));
  return html + "</tbody></table></div>\n";
}

std::string plan_legend() {
  return "<ul class=\"legend\"><li><i class=\"rows\"></i>all of it, for its own rows</li><li><i "
         "class=\"outputs\"></i>some of "
         "the outputs, of all rows</li><li><i class=\"inputs\"></i>some of the inputs, of all rows</li><li><i "
         "class=\"all\"></i>all of it, for all rows</li></ul>\n";
}

Bars memory_of(const RunRecord& run, const Plan& plan) {
  const MemoryNeed need = memory_need(plan);
  const auto weights = static_cast<double>(need.weight_bytes), pieces = static_cast<double>(need.piece_bytes);
  return {"Memory of a worker of " + run.name + ", as planned",
          "MB",
          {"weights, gradients, optimizer", "activations and their gradients", "pieces of checkpoints"},
          {2, 0, 7},
          {{"worker 0",
            {weights / 1e6, need.step_row_bytes * static_cast<double>(plan.request.step_rows) / 1e6, pieces / 1e6}}}};
}

std::string figures_of_plan(const RunRecord& run) {
  const Plan plan = plan_of(run);
  const std::string about =
      format("{} on {} worker{} under {}: {} rows a step, {} sent by each worker.", plan.model, plan.ranks(),
             plan.ranks() == 1 ? "" : "s", name_of(plan.request.strategy), plan.request.step_rows, sent_text(plan, 2));
  return html_of(Figure{"What each worker of " + run.name + " holds and sends",
                        "<div class=\"both\">\n<div>\n" + drawn_plan(plan) + plan_legend() +
                            "</div>\n<details open><summary>The network</summary>\n<div class=\"scroll\">" +
                            draw_net(plan, true) + "</div></details>\n</div>\n",
                        about,
                        {},
                        "",
                        true}) +
         html_of(figure_of(memory_of(run, plan)));
}

}  // namespace

std::string plan_section(Runs runs) {
  std::string content;
  for (const RunRecord& run : runs) try {
      content += of_run(run.name, runs.size(), figures_of_plan(run));
    } catch (const std::exception& e) {  // e.g. the recipe of another version
      content += missing(concat(run.name, ": there is no plan to draw: ", own_words(e)));
    }
  return section("plan", "Plan", content);
}

}  // namespace owt
