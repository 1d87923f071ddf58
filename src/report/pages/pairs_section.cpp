#include <filesystem>

#include "src/report/pages/chart.h"
#include "src/report/pages/run_summary.h"
#include "src/report/pages/sections.h"
#include "src/system/log.h"

namespace owt {
namespace {

// The list, and with several runs the run.
std::string title_of(const RunRecord& run, const VerificationRecord& record, size_t runs) {
  return runs == 1 ? record.name : run.name + ", " + record.name;
}

std::vector<std::string> row_of(const std::string& title, const VerificationRecord& record) {
  std::string rates;
  for (const auto& [far, tar] : record.at_far)
    rates += format("{}{} at {:g}", rates.empty() ? "" : ", ", percent_text(tar), far);
  const std::filesystem::path weights = record.weights;
  return {title,
          std::to_string(record.same_pairs),
          std::to_string(record.different_pairs),
          std::to_string(record.images),
          format("{} +- {:.2f} %", percent_text(record.accuracy), 100 * record.deviation),
          rates,
          percent_text(record.equal_error_rate),
          format("{:.5f}", record.area_under_roc),
          format("{} values of '{}'{}", record.features, record.layer, record.mirrored ? ", with mirror image" : ""),
          (weights.parent_path().filename() / weights.filename()).string()};
}

}  // namespace

std::string pairs_section(Runs runs) {
  HtmlTable table{{"pairs", "same", "different", "images", "accuracy, 10 folds", "TAR at FAR", "EER", "AUC",
                   "embedding", "weights"},
                  {},
                  true};
  LineChart chart{.title = "TAR over FAR (ROC)", .x_name = "FAR", .y_name = "TAR, %", .log_x = true};
  for (const RunRecord& run : runs)
    for (const VerificationRecord& record : run.verifications) {
      const std::string title = title_of(run, record, runs.size());
      table.rows.push_back(row_of(title, record));
      Line line{.name = title, .points = {}, .color = static_cast<int>(chart.lines.size())};
      for (const auto& [far, tar] : record.roc) line.points.push_back({far, 100 * tar});
      chart.lines.push_back(std::move(line));
    }
  const std::string title = "Pairs of images";
  if (table.rows.empty())
    return section("pairs", title,
                   missing("No pairs of images were compared: owt verify RUN PAIRS does that, and stores the result."));
  Figure figure = figure_of(chart);
  figure.wide = true;
  return section("pairs", title,
                 html_of(table) + html_of(figure) +
                     paragraph("TAR is the share of same pairs that are accepted, FAR the share of different pairs. n "
                               "different pairs cannot show a FAR below 1/n."));
}

}  // namespace owt
