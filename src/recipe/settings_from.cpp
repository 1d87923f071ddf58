#include <filesystem>
#include <optional>
#include <set>

#include "src/net/layer_names.h"
#include "src/plan/plan_rows.h"
#include "src/recipe/strategy_settings.h"
#include "src/system/check.h"
#include "src/system/own_words.h"

namespace owt {
namespace {

void check_input(const Config& config, const DataSettings& data, const Model& model) {
  const int64_t crop = data.augment.crop;
  const Shape made{crop > 0 ? crop : data.image[0], crop > 0 ? crop : data.image[1], data.image[2]};
  if (made[2] != model.input[2])
    config.error("format", concat("images of format '", data.format, "' have 3 channels, or 1 for a model of grey ",
                                  "images; the model's input has ", model.input[2],
                                  "; only format = \"synthetic\" has as many as the model"));
  if (made != model.input)
    config.error("augment", concat("the images come out as ", made, ", the model wants ", model.input,
                                   " (height x width x channels); set augment.crop, or the model's input"));
}

// Checks settings that only some data sets support.
void check_augment(const Config& augment, const DataSettings& data) {
  const bool shards = data.format == "shards";
  if (shards && data.augment.mean == AugmentSettings::From::kPixel)
    augment.error("mean", "'mean' is \"pixel\", but the images of shards differ in size; use \"channel\" or [r, g, b]");
  if (shards && data.augment.pad > 0)
    augment.error("pad", "'pad' is not for shards, whose crops lie within the image; leave it out");
  if (!shards && data.augment.pca > 0)
    augment.error("pca", "'pca' is for shards, for which owt prepare stats knows the colours; 'color' is for all data");
}

double read_validation(Config& config) {
  const double wanted = config.number("validation", 0, {.low = 0, .high = 1e9});
  if (wanted >= 1 && (wanted == 1 || wanted != std::floor(wanted)))
    config.error("validation", concat("'validation' is ", number_text(wanted),
                                      ", wanted a share of the training images below 1, e.g. 0.1, or a number of them "
                                      "from 2 on; 0 holds none out"));
  return wanted;
}

DataSettings read_data(Config config, const Model& model) {
  DataSettings data;
  data.format = config.word("format", {"cifar10", "cifar100", "shards", "synthetic"});
  data.dir = config.string("dir", "");
  data.classes = config.word("classes", "name", {"name", "number", "data"});
  data.batch = config.integer("batch", 0, {.low = 1, .high = 1 << 24});
  data.batch_per_rank = config.integer("batch_per_rank", 0, {.low = 1, .high = 1 << 24});
  if (data.batch > 0 && data.batch_per_rank > 0)
    config.error("batch_per_rank",
                 "give 'batch' (rows of a step) or 'batch_per_rank' (rows of a worker), not both; --set "
                 "data.batch= removes the recipe's");
  if (data.batch == 0 && data.batch_per_rank == 0)
    config.error("batch", "'batch' is missing (rows of one step; or batch_per_rank)");
  data.accumulate = static_cast<int>(config.integer("accumulate", 1, {.low = 1, .high = 1 << 20}));
  data.shuffle = config.boolean("shuffle", true);
  data.sampling = config.word("sampling", "uniform", {"uniform", "balanced"}) == "balanced" ? Sampling::kBalanced
                                                                                            : Sampling::kUniform;
  if (data.sampling == Sampling::kBalanced && !data.shuffle)
    config.error("sampling",
                 "'sampling' is \"balanced\", whose order is random, but 'shuffle' is false; leave one of them out");
  data.targets = config.boolean("targets", false);
  data.validation = read_validation(config);
  const int channels = model.input[2] == 1 ? 1 : 3;  // A model of one channel sees the luma of files.
  data.image = {data.image[0], data.image[1], channels};
  if (data.format == "synthetic") {
    const bool cropped = config.table("augment").has("crop");
    const int64_t side = config.integer("side", cropped ? 32 : model.input[0], {.low = 8, .high = 4096});
    data.train_images = config.integer("train_images", 5000, {.low = 1, .high = 1e7});
    data.test_images = config.integer("test_images", 1000, {.low = 1, .high = 1e7});
    data.seed = static_cast<uint64_t>(config.integer("seed", 1, {.low = 0}));
    data.image = {side, side, model.input[2]};
  }
  Config augment = config.table("augment");
  if (data.format == "shards") {
    data.crop = CropSettings::from(augment, model.input[0]);
    data.crop.channels = channels;
    data.image = {data.crop.crop, data.crop.crop, channels};
    data.decoder = decoder_named(
        config.word("decoder", "cpu", std::vector<std::string>(kDecoderNames.begin(), kDecoderNames.end())));
    data.max_corrupt = config.number("max_corrupt", data.max_corrupt, {.low = 0, .high = 1});
  }
  data.augment = AugmentSettings::from(augment, data.image);
  check_augment(augment, data);
  check_input(config, data, model);
  data.loader_threads = static_cast<int>(config.integer("loader_threads", 1, {.low = 1, .high = 256}));
  data.resident_bytes = config.integer("resident_mb", data.resident_bytes >> 20, {.low = 0, .high = 1 << 24}) << 20;
  config.finish("[data]");
  return data;
}

// config: [loss]. last_layer: the type of the model's last layer.
LossMargin read_margin(Config& config, const std::string& last_layer) {
  LossMargin margin;
  if (!config.given("margin")) return margin;
  Config table = config.table("margin");
  const std::string type = table.word("type", {"arcface", "cosface", "combined"});
  constexpr double kHalfPi = 1.5707963;
  if (type == "arcface") margin.angle = table.number("m", 0.5, {.low = 0, .high = kHalfPi});
  if (type == "cosface") margin.cosine = table.number("m", 0.35, {.low = 0, .high = 1});
  if (type == "combined") {
    margin.factor = table.number("m1", 1, {.low = 0.5, .high = 1.5});
    margin.angle = table.number("m2", 0, {.low = 0, .high = kHalfPi});
    margin.cosine = table.number("m3", 0, {.low = 0, .high = 1});
  }
  margin.scale = table.number("scale", 64, {.low = 1e-3, .high = 1e4});
  table.finish("margin");
  if (last_layer != "cosine")
    config.error("margin", concat("'margin' is for cosines, but the last layer is of type '", last_layer,
                                  "'; use type 'cosine' there, or leave the margin out"));
  return margin;
}

// config: [loss].
DistillSettings read_distill(Config& config, int64_t classes, LossSettings& loss) {
  DistillSettings distill;
  if (!config.given("distill")) return distill;
  Config table = config.table("distill");
  distill.run = table.string("run");
  if (distill.run.empty()) table.error("run", "'run' is empty; give the folder of the teacher's run");
  distill.checkpoint = table.string("checkpoint", "");
  loss.targets = {.classes = classes, .from_teacher = true};
  loss.targets.weight = table.number("weight", 0.9, {.low = 0, .high = 1});
  loss.targets.temperature = table.number("temperature", 4, {.low = 1e-3, .high = 1e3});
  if (table.given("hint")) {
    Config hint = table.table("hint");
    distill.hint_teacher_layer = hint.string("teacher_layer");
    distill.hint_layer = hint.string("layer");
    distill.hint_weight = hint.number("weight", 1, {.low = 1e-6, .high = 1e6});
    hint.finish("hint");
  }
  table.finish("distill");
  if (loss.margin.scale > 0)
    config.error("distill", "'distill' compares plain logits, but 'margin' changes those of the label; leave one out");
  if (loss.samples())
    config.error("distill", "'distill' compares all classes, but 'sample' leaves some out; leave one of them out");
  return distill;
}

LossSettings read_loss(Config config, const std::string& last_layer, int64_t classes, DistillSettings& distill) {
  LossSettings loss;
  if (config.word("type", "softmax", {"softmax", "logistic"}) == "logistic") loss.type = LossType::kLogistic;
  loss.label_smoothing = config.number("label_smoothing", 0, {.low = 0, .high = 1});
  if (loss.label_smoothing == 1)
    config.error("label_smoothing", "'label_smoothing' is 1, wanted less: all labels would be the same; 0.1 is usual");
  loss.margin = read_margin(config, last_layer);
  if (loss.margin.scale > 0 && loss.type == LossType::kLogistic)
    config.error("margin", "'margin' is for the softmax, but type is 'logistic'; leave one of them out");
  loss.sample = config.number("sample", 1, {.low = 1e-6, .high = 1});
  if (loss.samples() && loss.type == LossType::kLogistic)
    config.error("sample", "'sample' is for the softmax, but type is 'logistic'; leave one of them out");
  if (loss.samples() && loss.label_smoothing > 0)
    config.error("sample",
                 "'sample' leaves classes out, but 'label_smoothing' is of all classes; leave one of them out");
  distill = read_distill(config, classes, loss);
  config.finish("[loss]");
  return loss;
}

// For data.targets.
void use_targets(const Config& loss, Settings& settings) {
  const auto refuse = [&](const char* key, const char* of) {
    loss.error(key,
               concat("'", key, "' is ", of, ", but data.targets gives every class a target; leave one of them out"));
  };
  if (settings.loss.label_smoothing > 0) refuse("label_smoothing", "of labels");
  if (settings.loss.margin.scale > 0) refuse("margin", "of the label");
  if (settings.loss.samples()) refuse("sample", "for images with one label");
  if (!settings.distill.run.empty()) refuse("distill", "for targets of a teacher");
  settings.loss.targets.classes = settings.model.classes;
}

// Returned for the model, since the patterns name its layers.
std::vector<std::string> read_frozen(Config& optimizer, const Model& model) {
  const std::vector<std::string> patterns = optimizer.strings("freeze");
  std::vector<std::string> layers;
  for (const auto& layer : whole_layers(model))
    for (std::string& name : layers_with_weights(layer->params())) layers.push_back(std::move(name));
  std::set<std::string> frozen;
  try {
    frozen = layers_named("'freeze' has", patterns, layers);
  } catch (const Error& e) {
    optimizer.error("freeze", e.what());
  }
  if (!layers.empty() && frozen.size() == layers.size())
    optimizer.error("freeze", "'freeze' names all layers with weights, so none would be trained; leave one out");
  return patterns;
}

// For Muon: the layers whose weights it does not update as matrices: the last one with weights, and the layers that the
// recipe names.
std::optional<std::vector<std::string>> read_muon_except(Config& optimizer, const Model& model,
                                                         const OptimizerSettings& settings) {
  if (settings.type != OptimizerSettings::Type::kMuon) return {};
  Config others = optimizer.table("others");
  std::vector<std::string> except = others.strings("layers"), layers;
  for (const auto& layer : whole_layers(model))
    for (std::string& name : layers_with_weights(layer->params())) layers.push_back(std::move(name));
  try {
    layers_named("'layers' has", except, layers);
  } catch (const Error& e) {
    others.error("layers", e.what());
  }
  for (const auto& layer : whole_layers(model))
    for (const Param* param : layer->params())
      if (param->full_shape.rank() > 1) layers.push_back(layer_of(*param));
  if (!layers.empty()) except.push_back(layers.back());
  return except;
}

// The shares of all workers. The recipe has one number per worker or, if the workers of a group share rows, one per
// group.
std::vector<double> read_shares(Config& config, const ParallelSettings& parallel) {
  std::vector<double> shares = config.numbers("shares");
  for (const double share : shares)
    if (!(share > 0) || !std::isfinite(share))
      config.error("shares", concat("'shares' has ", share, ", wanted positive numbers"));
  const int found = static_cast<int>(shares.size()), workers = parallel.workers;
  if (found == workers) return shares;
  const int members = parallel.model_ranks > 0 ? parallel.model_ranks : workers;
  const bool in_groups = facts_of(parallel.strategy).shares_rows && workers % members == 0;
  if (!in_groups || found != workers / members)
    config.error("shares", concat("'shares' has ", found, found == 1 ? " number" : " numbers", ", wanted ", workers,
                                  ", one for each worker",
                                  in_groups ? concat(", or ", workers / members, ", one for each group of ", members,
                                                     " that share rows under ", name_of(parallel.strategy))
                                            : "",
                                  "; --shares equal deals as many rows to each"));
  std::vector<double> of_workers;
  for (const double share : shares) of_workers.insert(of_workers.end(), static_cast<size_t>(members), share);
  return of_workers;
}

DenseSplit read_split(Config& config) {
  std::vector<std::string> names;
  constexpr DenseSplit kAll[] = {DenseSplit::kOfStrategy, DenseSplit::kColumns, DenseSplit::kRows, DenseSplit::kLess};
  for (const DenseSplit split : kAll) names.emplace_back(name_of(split));
  const std::string name = config.word("split", names.front(), names);
  return *std::find_if(std::begin(kAll), std::end(kAll), [&](DenseSplit split) { return name == name_of(split); });
}

ParallelSettings read_parallel(Config config) {
  ParallelSettings parallel;
  parallel.workers = static_cast<int>(config.integer("workers", 1, {.low = 1, .high = 4096}));
  std::vector<std::string> known = strategy_names();
  known.emplace_back("auto");
  const std::string strategy = config.word("strategy", name_of(kDefaultStrategy), known);
  parallel.automatic = strategy == "auto";
  if (!parallel.automatic) parallel.strategy = strategy_from(strategy);
  parallel.dense_update =
      config.word("dense_update", "step", {"step", "round"}) == "step" ? DenseUpdate::kStep : DenseUpdate::kRound;
  parallel.model_ranks = static_cast<int>(config.integer("model_ranks", 0, {.low = 0, .high = 4096}));
  parallel.split = read_split(config);
  if (parallel.automatic && parallel.dense_update == DenseUpdate::kRound)
    config.error("strategy",
                 "'auto' and dense_update = \"round\" do not go together: with an update every round the "
                 "strategies train differently; name one");
  if (config.is_string("shares"))
    parallel.measure_shares = config.word("shares", {"equal", "measured"}) == "measured";
  else if (config.given("shares"))
    parallel.shares = read_shares(config, parallel);
  parallel.average_every = static_cast<int>(config.integer("average_every", 1, {.low = 1, .high = 1 << 20}));
  parallel.average_from = config.number("average_from", 0, {.low = 0, .high = 1e9});
  if (parallel.average_from > 0 && !config.given("average_every"))
    config.error("average_from", "'average_from' is when steps without averages begin; set 'average_every', e.g. to 8");
  if (parallel.automatic && parallel.average_every > 1)
    config.error("strategy",
                 "'auto' and average_every do not go together: with weights that are averaged the strategies train "
                 "differently; name one");
  parallel.scale_lr = config.word("scale_lr", "none", {"none", "linear", "sqrt"});
  parallel.bucket_bytes =
      static_cast<int64_t>(config.number("bucket_mb", 8, {.low = 0.001, .high = 65536}) * (1 << 20));
  parallel.bf16_transport = config.word("wire", "fp32", {"fp32", "bf16"}) == "bf16";
  parallel.timeout_s = config.number("timeout_s", parallel.timeout_s, {.low = 1, .high = 86400});
  parallel.stall_s = config.number("stall_s", parallel.stall_s, {.low = 1, .high = 86400});
  config.finish("[parallel]");
  return parallel;
}

ElasticSettings read_elastic(Config config) {
  ElasticSettings elastic;
  elastic.mirror_every = config.integer("mirror_every", elastic.mirror_every, {.low = 1, .high = 1e9});
  config.finish("[elastic]");
  return elastic;
}

RunSettings read_run(Config config) {
  RunSettings run;
  run.seed = static_cast<uint64_t>(config.integer("seed", 1, {.low = 0}));
  run.log_every = config.integer("log_every", 20, {.low = 1});
  run.tensorboard = config.boolean("tensorboard", false);
  run.eval_every_epochs = config.integer("eval_every_epochs", 1, {.low = 0});
  run.eval_every_steps = config.integer("eval_every_steps", 0, {.low = 0});
  run.patience = config.integer("patience", 0, {.low = 0});
  run.checkpoint_every_epochs = config.integer("checkpoint_every_epochs", 1, {.low = 0});
  run.checkpoint_every_steps = config.integer("checkpoint_every_steps", 0, {.low = 0});
  run.keep_checkpoints = static_cast<int>(config.integer("keep_checkpoints", 3, {.low = 1, .high = 1e6}));
  run.conv_algorithm = conv_algorithm_from(
      config.word("conv_algorithm", "auto",
                  {"auto", "by-shape", "direct", "few-channels", "depthwise", "winograd", "winograd-bf16"}));
  run.device = config.word("device", "auto", {"auto", "cpu", "cuda"});
  run.precision = precision_from(config.word("precision", "fp32", {"fp32", "tf32", "bf16"}));
  run.canonical = config.boolean("canonical", false);
  run.deterministic = config.boolean("deterministic", true);
  run.equality_every = config.integer("equality_every", run.equality_every, {.low = 0});
  run.cuda_graph = config.boolean("cuda_graph", true);
  run.cuda_graph_collectives = config.boolean("cuda_graph_collectives", false);
  run.update_beside = config.word("update_beside", "auto", {"auto", "on", "off"});
  config.finish("[run]");
  return run;
}

}  // namespace

Settings settings_from(Config recipe, const std::string& name) {
  Settings settings;
  settings.name = name;
  settings.recipe = recipe;
  // First, since the keys of a misspelt section would be reported as missing.
  for (const char* section :
       {"model", "data", "loss", "optimizer", "schedule", "parallel", "pipeline", "ps", "elastic", "run"})
    recipe.given(section);
  recipe.finish("a recipe");
  Config model = recipe.table("model");
  if (!recipe.has("model")) recipe.error("model", "'model' is missing: a path to a model file, or a table");
  settings.model = read_model(model);
  settings.data = read_data(recipe.table("data"), settings.model);
  settings.loss = read_loss(recipe.table("loss"), whole_layers(settings.model).back()->type(), settings.model.classes,
                            settings.distill);
  settings.loss.mixed_labels = settings.data.augment.mix.any();
  if (settings.loss.mixed_labels && settings.loss.margin.scale > 0)
    recipe.table("loss").error("margin",
                               "'margin' is for images with one label, but mixup or cutmix gives them two; leave one "
                               "of them out");
  if (settings.loss.mixed_labels && settings.loss.samples())
    recipe.table("loss").error("sample",
                               "'sample' is for images with one label, but mixup or cutmix gives them two; leave one "
                               "of them out");
  if (settings.data.targets) use_targets(recipe.table("loss"), settings);
  Config optimizer = recipe.table("optimizer"), schedule = recipe.table("schedule");
  settings.model.frozen = read_frozen(optimizer, settings.model);
  settings.ema = EmaSettings::from(optimizer);
  settings.optimizer = OptimizerSettings::from(optimizer);
  settings.model.muon_except = read_muon_except(optimizer, settings.model, settings.optimizer);
  settings.schedule = ScheduleSettings::from(schedule);
  settings.parallel = read_parallel(recipe.table("parallel"));
  read_pipeline(recipe.table("pipeline"), settings.optimizer, settings.parallel);
  read_server(recipe.table("ps"), settings.optimizer, settings.parallel);
  settings.elastic = read_elastic(recipe.table("elastic"));
  settings.run = read_run(recipe.table("run"));
  check_canonical(recipe.table("run"), settings);
  if (settings.schedule.type == RateCurve::Type::kPlateau && settings.run.eval_every_epochs == 0 &&
      settings.run.eval_every_steps == 0)
    recipe.table("run").error("eval_every_epochs",
                              "schedule type 'plateau' goes by the evaluations, and there is "
                              "none before the end; set it to 1, or take another schedule");
  if (settings.run.patience > 0 && settings.run.eval_every_epochs == 0 && settings.run.eval_every_steps == 0)
    recipe.table("run").error("eval_every_epochs",
                              "'patience' counts evaluations, and there is none before the end; set it to 1, or leave "
                              "'patience' out");
  return settings;
}

}  // namespace owt
