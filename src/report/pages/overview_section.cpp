#include <algorithm>
#include <cmath>

#include "src/core/profiler.h"
#include "src/report/pages/page.h"
#include "src/report/pages/run_summary.h"
#include "src/report/pages/sections.h"
#include "src/system/log.h"
#include "src/train/progress.h"

namespace owt {
namespace {

constexpr size_t kFewListed = 8;  // the table of more would be a long list on a phone

double median_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  return values.empty() ? NAN : median(values);
}

std::vector<std::string> overview_of(const RunRecord& run) {
  const StepColumns& steps = run.metrics.steps;
  const EvaluationLine* const best = best_of(run);
  const auto& all = run.metrics.evaluations;
  const double hours = last_finite(steps.hours);
  return {run.name,
          state_of(run),
          steps_text(run),
          short_number(last_finite(steps.epochs)),
          std::isfinite(hours) ? duration_text(3600 * hours) : "–",
          fact_of(run, "strategy", "parallel.strategy"),
          workers_of(run),
          short_number(median_of(steps.images_per_second)),
          short_number(last_finite(steps.loss)),
          all.empty() ? "–" : short_number(all.back().loss),
          all.empty() ? "–" : percent_text(all.back().top1),
          best ? percent_text(best->top1) : "–",
          best ? std::to_string(best->step) : "–"};
}

std::string figure_in_large(const std::string& value, const std::string& what, const std::string& more) {
  return format("<p><b>{}</b><span>{}<small>{}</small></span></p>\n", escaped(value), escaped(what), escaped(more));
}

// The run with the best evaluation; without evaluations the first.
const RunRecord& best_run(Runs runs) {
  const auto top1 = [](const RunRecord& run) {
    const EvaluationLine* const best = best_of(run);
    return best ? best->top1 : -1;
  };
  return *std::max_element(runs.begin(), runs.end(), [&](auto& a, auto& b) { return top1(a) < top1(b); });
}

// The best figures, in large.
std::string best_figures(Runs runs) {
  const RunRecord& run = best_run(runs);
  const std::string split = split_of({&run, 1}), of = runs.size() == 1 ? "" : run.name + ", ";
  std::string html;
  if (const EvaluationLine* const best = best_of(run)) {
    html += figure_in_large(percent_text(best->top1), "best " + split + " top-1", concat(of, "step ", best->step));
    html += figure_in_large(short_number(run.metrics.evaluations.back().loss), split + " loss",
                            concat(of, "step ", run.metrics.evaluations.back().step));
  } else if (!run.metrics.steps.step.empty()) {
    html += figure_in_large(short_number(last_finite(run.metrics.steps.loss)), "training loss",
                            concat(of, "step ", run.metrics.steps.step.back()));
  }
  if (runs.size() > 1) return html;
  const std::string state = state_of(run);
  const double left = seconds_left_of(run), hours = last_finite(run.metrics.steps.hours);
  if (std::isfinite(left))
    html += figure_in_large(duration_text(left), "left", "step " + steps_text(run));
  else if (std::isfinite(hours))
    html += figure_in_large(duration_text(3600 * hours), "trained for", state + ", step " + steps_text(run));
  return html;
}

// Recipe, model, data and date of a run, in a line.
std::string origin_of(const RunRecord& run) {
  const std::string recipe = recipe_of(run), images = fact_of(run, "training images", "");
  std::string text = recipe.empty() ? "" : "Recipe " + recipe + ", model ";
  text += text.empty() ? "Model " : "";
  text += fact_of(run, "model", "model.name") + ", data " + fact_of(run, "data", "data.format");
  if (images != "–") text += " (" + images + " training images)";
  text += ", " + fact_of(run, "strategy", "parallel.strategy") + ", workers " + workers_of(run);
  if (const std::string device = fact_of(run, "device", "run.device"); device != "–") text += ", " + device;
  if (const std::string started = fact_of(run, "started", ""); started != "–") text += ". Started " + started;
  return escaped(text) + (run.changed > 0 ? "; last line of metrics.jsonl: " + last_line_of(run) : "") + ".";
}

std::string large(const std::string& figures) { return "<div class=\"summary\">\n" + figures + "</div>\n"; }

// Sorted: training runs, then the others by their last change.
std::vector<const RunRecord*> newest_first(Runs runs) {
  std::vector<const RunRecord*> all;
  for (const RunRecord& run : runs) all.push_back(&run);
  std::stable_sort(all.begin(), all.end(), [](const RunRecord* a, const RunRecord* b) {
    return a->running != b->running ? a->running : a->changed > b->changed;
  });
  return all;
}

std::string listed(const RunRecord& run) {
  const EvaluationLine* const best = best_of(run);
  const auto& all = run.metrics.evaluations;
  const double left = seconds_left_of(run);
  std::string row = format("<tr><td><a href=\"run/{}/\">{}</a></td><td>{}</td>", name_in_url(run.name),
                           escaped(run.name), escaped(state_of(run)));
  for (const std::string& cell :
       {steps_text(run), short_number(last_finite(run.metrics.steps.loss)),
        short_number(all.empty() ? NAN : all.back().loss), percent_text(all.empty() ? NAN : all.back().top1),
        percent_text(best ? best->top1 : NAN), std::isfinite(left) ? duration_text(left) : "–"})
    row += "<td class=\"n\">" + escaped(cell) + "</td>";
  return row + "<td class=\"n\">" + last_line_of(run) + "</td></tr>\n";
}

}  // namespace

std::string runs_section(Runs runs) {
  const std::string split = escaped(split_of(runs));
  std::string html = runs.empty() ? "" : large(best_figures(runs));
  html +=
      "<div class=\"scroll\"><table class=\"runs\">\n<thead><tr><th scope=\"col\">run</th><th scope=\"col\">state</th>";
  for (const std::string& head : {std::string("step"), std::string("training loss"), split + " loss", split + " top-1",
                                  "best " + split + " top-1", std::string("left"), std::string("last line")})
    html += "<th scope=\"col\" class=\"n\">" + head + "</th>";
  html += "</tr></thead>\n<tbody>\n";
  for (const RunRecord* const run : newest_first(runs)) html += listed(*run);
  return section("overview", format("{} run{}", runs.size(), runs.size() == 1 ? "" : "s"),
                 html + "</tbody></table></div>\n");
}

std::string overview_section(Runs runs) {
  const std::string split = split_of(runs);
  HtmlTable table{{"run", "state", "steps", "epochs", "trained for", "strategy", "workers", "images/s", "training loss",
                   split + " loss", split + " top-1", "best " + split + " top-1", "at step"},
                  {},
                  runs.size() <= kFewListed};
  std::string wrong;
  for (const RunRecord& run : runs) {
    table.rows.push_back(overview_of(run));
    for (const std::string& line : run.wrong) wrong += missing(line);
  }
  std::string summary;
  if (!runs.empty()) summary = large(best_figures(runs));
  if (runs.size() == 1) summary += "<p class=\"about\">" + origin_of(runs.front()) + "</p>\n";
  return section("overview", "Overview", summary + html_of(table) + wrong);
}

}  // namespace owt
