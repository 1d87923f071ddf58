#include <iostream>

#include "src/comm/launch.h"
#include "src/commands/class_table.h"
#include "src/commands/evaluation_json.h"
#include "src/commands/run.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "tools/commands.h"

namespace owt {
namespace {

void print(const Evaluation& e, const EvaluationRequest& request, int64_t classes) {
  const std::string precision = e.average_precision ? format(", mAP {:.4f}", *e.average_precision) : "";
  std::cout << format("{}{}, loss {:.4f} ({} {} images{})\n", accuracy_text(e, classes), precision, e.loss, e.images,
                      kind_of(request.split),
                      request.views.count > 1 ? format(", {} views", request.views.name()) : "");
  if (request.per_class) std::cout << class_table(e.classes, has_top5(classes));
}

}  // namespace

int command_eval(const Arguments& arguments) {
  Options options("owt eval", "Measures the accuracy of a trained network on the test images or another split.");
  declare_trained(options);
  declare_split(options);
  declare_views(options);
  declare_classes(options, ClassesOf::kTrained);
  options.option("predictions", "FILE",
                 "write a CSV file with one line per image: its label and the five most probable classes");
  options.option(
      "confusion", "FILE",
      "write a CSV file with one line per pair of label and predicted class that occurs: the number of images");
  options.flag("per-class",
               "print a table of the classes: images, top-1, top-5, and the most frequent wrong class; of more than "
               "1000 classes the 50 with the lowest top-1. Its last line is the mean over the classes");
  options.option("json", "FILE",
                 "write loss, top-1, top-5, images per second and, with --per-class, the classes as JSON too; -: print "
                 "only this JSON");
  declare_shared(options);
  declare_strategy(options);
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  check_two_files(options, "predictions", "confusion");
  for (const char* file : {"predictions", "confusion"}) check_two_files(options, file, "json");
  const std::string json = options.given("json") ? options.string("json") : "";
  EvalOptions eval;
  eval.weights = trained_weights(options);
  eval.run_folder = run_of_facts(options, eval.weights);
  eval.threads = shared_threads(options);
  const Settings settings = shared_settings(options, with_classes(options, changes_to_evaluate(options)));
  eval.data = given_data(options, settings);
  eval.request.split = split_option(options, settings);
  eval.request.views = views_option(options, settings);
  if (options.given("predictions")) eval.request.predictions = options.string("predictions");
  if (options.given("confusion")) eval.request.confusion = options.string("confusion");
  eval.request.per_class = options.boolean("per-class");
  eval.request.average_precision = settings.data.targets && settings.loss.type == LossType::kLogistic;
  if (json != kStandardOutput) eval.json = json;
  const Evaluation e = evaluate_file(settings, eval);
  if (launch().rank != 0) return 0;
  const std::string text = json.empty() ? "" : evaluation_json(e, eval, settings.model.classes);
  if (!eval.json.empty()) write_file_atomically(eval.json, text);
  if (json == kStandardOutput)
    std::cout << text;
  else
    print(e, eval.request, settings.model.classes);
  return 0;
}

}  // namespace owt
