#include "src/commands/evaluation_json.h"

#include "src/commands/json_output.h"

namespace owt {
namespace {

using Json = OutputJson;

constexpr const char* kEvaluationFormat = "owt evaluation 1";

Json class_json(const ClassAccuracy& of, bool top5) {
  const auto share = [&](int64_t part) { return static_cast<double>(part) / static_cast<double>(of.images); };
  Json json{{"class", of.number}, {"name", of.name}, {"images", of.images}, {"top1", share(of.top1)}};
  if (top5) json["top5"] = share(of.top5);
  if (of.times > 0) json["taken_for"] = {{"name", of.taken_for}, {"images", of.times}};
  return json;
}

}  // namespace

std::string evaluation_json(const Evaluation& evaluation, const EvalOptions& options, int64_t classes,
                            const std::string& run) {
  const EvaluationRequest& request = options.request;
  const bool top5 = has_top5(classes);
  const bool counted = !request.views.average_logits();  // other views have a name
  Json json{
      {"format", kEvaluationFormat},     {"weights", options.weights},
      {"split", name_of(request.split)}, {"views", counted ? Json(request.views.count) : Json(request.views.name())},
      {"images", evaluation.images},     {"loss", evaluation.loss},
      {"top1", evaluation.top1}};
  if (!run.empty()) json["run"] = run;
  if (top5) json["top5"] = evaluation.top5;
  if (evaluation.average_precision) json["mean_average_precision"] = *evaluation.average_precision;
  json["seconds"] = evaluation.seconds;
  json["images_per_second"] = static_cast<double>(evaluation.images) / evaluation.seconds;
  if (!evaluation.classes.empty()) json["mean_top1_of_classes"] = mean_top1(evaluation.classes);
  for (const ClassAccuracy& of : evaluation.classes) json["classes"].push_back(class_json(of, top5));
  return json_lines(json);
}

}  // namespace owt
