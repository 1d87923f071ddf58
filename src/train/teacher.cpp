#include "src/train/teacher.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "layers/loss/teacher_targets.h"
#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/comm/solo.h"
#include "src/files/checkpoint_files.h"
#include "src/net/hint.h"
#include "src/plan/plan_rows.h"
#include "src/predict/memory_need.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "src/system/texts.h"
#include "src/train/data_facts.h"
#include "src/train/weights.h"
#include "src/train/worker.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

// The checkpoint of the teacher in `run` from which the student in this run folder has learned; empty: there is none.
std::string earlier_checkpoint(const std::string& student, const std::string& run) {
  const fs::path path = fs::path(student) / "config.toml";
  if (student.empty() || !fs::is_regular_file(path)) return "";
  Config recipe = Config::file(path.string());
  if (!recipe.is_table("loss")) return "";
  Config loss = recipe.table("loss");
  if (!loss.is_table("distill")) return "";
  Config distill = loss.table("distill");
  return distill.string("run") == fs::absolute(run) ? distill.string("checkpoint", "") : "";
}

// The folder of the teacher's run, its recipe, and the checkpoint with its weights, as rank 0 finds them.
std::string read_teacher(const DistillSettings& distill, const std::string& student) {
  const std::string& run = distill.run;
  const fs::path recipe = fs::path(run) / "config.toml";
  if (!fs::is_regular_file(recipe)) fail("loss.distill.run: ", run, " is no run folder; it has no config.toml");
  const std::string named = distill.checkpoint.empty() ? earlier_checkpoint(student, run) : distill.checkpoint;
  if (!named.empty() && !is_checkpoint(named))
    fail("loss.distill.checkpoint: ", named, " is no checkpoint folder; name another one of ", run);
  const auto its_run = named.empty() ? std::nullopt : run_folder_of_checkpoint(named);
  if (its_run && !fs::equivalent(*its_run, run))
    fail("loss.distill.checkpoint: ", named, " is of the run ", *its_run, ", and loss.distill.run is ", run,
         "; name the run that has this checkpoint");
  if (!named.empty()) load_checkpoint_state(named);  // damaged weights must not be used
  const auto checkpoint = named.empty() ? best_checkpoint(run) : named;
  if (!checkpoint) fail("loss.distill.run: ", run, " has no checkpoint yet; train the teacher first");
  return packed({fs::absolute(run).string(), read_file(recipe.string()), fs::absolute(*checkpoint).string()});
}

Shape output_of(const Model& model, size_t layer) {
  Shape batch = model.input.batch_of(1);
  const auto layers = whole_layers(model);
  for (size_t i = 0; i <= layer; ++i) batch = layers[i]->out_shape(batch);
  return batch.row();
}

void add_hint(const DistillSettings& distill, Model& student, Model& teacher) {
  const size_t of_teacher = layer_number(teacher, distill.hint_teacher_layer),
               of_student = layer_number(student, distill.hint_layer);
  const Shape wanted = output_of(teacher, of_teacher), mine = output_of(student, of_student);
  if (wanted.rank() != 3 || mine.rank() != 3 || wanted[0] != mine[0] || wanted[1] != mine[1])
    fail("loss.distill.hint: layer '", distill.hint_teacher_layer, "' of the teacher has the output ", wanted,
         ", and layer '", distill.hint_layer, "' has ", mine,
         "; name layers whose images have the same height and width");
  const auto after = [](Model& model, size_t layer, const Config& table) {
    model.layers.insert(model.layers.begin() + static_cast<std::ptrdiff_t>(layer) + 1, table);
  };
  for (const Model* model : {&student, &teacher})
    for (const auto& layer : whole_layers(*model))
      if (layer->name() == kHintLayer)
        fail("loss.distill.hint adds a layer '", kHintLayer, "', but model '", model->name,
             "' has a layer of this name; rename it");
  after(student, of_student, hint_table(wanted[2], distill.hint_weight));
  after(teacher, of_teacher, hint_table(0, 0));
  // A matrix whose norm Muon keeps (unit_weights) could not reach the size of the teacher's activation.
  if (student.muon_except) student.muon_except->push_back(concat(kHintLayer, ".project"));
}

// The plan of the run with the teacher's network. It only evaluates.
Plan teacher_plan(const Settings& settings, PlanRequest request) {
  request.loss = {.mixed_labels = settings.loss.mixed_labels};
  request.whole_logits = true;
  request.on.canonical_rows = 0;
  request.dense_update = DenseUpdate::kStep;
  request.average_every = 1;
  request.ema_every = 0;
  request.lookahead = false;
  request.optimizer_states = 0;
  request.norm_sums = 0;
  request.mirror_every = 0;
  request.batch_row_bytes = request.batch_bytes = 0;
  return make_plan(settings.distill.teacher->model, request);
}

// The number of the hint's layer in the plan; none: there is no hint.
std::optional<int64_t> hint_of(const Plan& plan) {
  const auto found = std::ranges::find(plan.layers, kHintLayer, &LayerPlan::name);
  if (found == plan.layers.end()) return {};
  return found - plan.layers.begin();
}

// Whether the ranks of the run can also divide the teacher: they have the same rows for both networks, and a hint is
// computed before rows are shared.
bool divides_teacher(const Settings& settings, const Plan& run) {
  if (!run.shares_logits()) return false;
  try {
    const Plan plan = teacher_plan(settings, run.request);
    if (const auto hint = hint_of(plan); hint && *hint >= plan.boundary) return false;
    return plan.shares_logits() && plan.model_ranks == run.model_ranks && row_group(plan, 0) == row_group(run, 0);
  } catch (const Error&) {
    return false;  // e.g. its layers need more rows than a micro-batch or a round has
  }
}

Plan plan_of_teacher(const Settings& settings, const Plan& run) {
  PlanRequest request = run.request;
  if (divides_teacher(settings, run)) return teacher_plan(settings, request);
  request.ranks = 1;
  request.strategy = kPlainDataParallel;
  request.options = {};
  request.model_ranks = 0;
  request.shares = request.speeds = {};
  request.slices = 1;
  return teacher_plan(settings, request);
}

Settings settings_of_teacher(const Settings& settings, const Plan& plan) {
  Settings its = *settings.distill.teacher;
  its.loss = plan.request.loss;
  its.optimizer = {};
  return its;
}

// How images are normalised. Without values nothing is subtracted, and nothing divides them.
struct Standardising {
  std::vector<double> mean, deviation;
  double scale;

  Standardising(const AugmentSettings& augment, const DatasetStatistics& data)
      : mean(values(augment.mean, augment.mean_values, data.channel_mean, data.pixel_mean)),
        deviation(values(augment.std, augment.std_values, data.channel_std, {})),
        scale(augment.scale) {}

  bool is_near(const Standardising& other) const {
    // Held-out images change the means a little.
    const auto near = [](double a, double b) { return std::abs(a - b) <= 1; };
    const auto alike = [](double a, double b) { return std::abs(a - b) <= 0.02 * std::abs(b); };
    return std::ranges::equal(mean, other.mean, near) && std::ranges::equal(deviation, other.deviation, alike) &&
           scale == other.scale;
  }
  std::string text() const { return format("mean {}, std {}, scale {}", in_words(mean), in_words(deviation), scale); }

 private:
  using From = AugmentSettings::From;
  static std::vector<double> values(From from, const std::vector<double>& given, const std::vector<double>& channel,
                                    const std::vector<double>& pixel) {
    if (from == From::kNone) return {};
    return from == From::kValues ? given : from == From::kChannel ? channel : pixel;
  }
  static std::string in_words(const std::vector<double>& values) {
    if (values.size() > 4) return "of each pixel";
    std::string text;
    for (const double value : values) text += format("{}{:.1f}", text.empty() ? "" : " ", value);
    return text.empty() ? "none" : text;
  }
};

}  // namespace

void open_teacher(Settings& settings, const std::string& student) {
  DistillSettings& distill = settings.distill;
  if (distill.run.empty()) return;
  const std::vector<std::string> found = unpacked(from_rank_0([&] { return read_teacher(distill, student); }));
  distill.run = found[0];
  distill.checkpoint = found[2];
  distill.weights = trained_weights_of(distill.checkpoint);
  settings.recipe.set("loss.distill.run", distill.run);
  settings.recipe.set("loss.distill.checkpoint", distill.checkpoint);
  if (launch().rank == 0) log_info("the teacher has the weights {}", distill.weights);
  const std::string path = (fs::path(distill.run) / "config.toml").string();
  const auto teacher = std::make_shared<Settings>(read_settings(Config::text(found[1], path), path));
  teacher->distill = {};
  teacher->model.frozen = {"*"};  // so it has no gradients and no optimizer state
  const Model &its = teacher->model, &mine = settings.model;
  if (its.input != mine.input)
    fail("the teacher in ", distill.run, " takes images of ", its.input, ", and model '", mine.name, "' takes ",
         mine.input, "; both see the same images, so give both models one input");
  if (its.classes != mine.classes)
    fail("the teacher in ", distill.run, " has ", its.classes, " classes, and model '", mine.name, "' has ",
         mine.classes, "; train the teacher on the classes of this run");
  if (!distill.hint_layer.empty()) add_hint(distill, settings.model, teacher->model);
  distill.teacher = teacher;
}

void check_teacher(const Job& job) {
  const DistillSettings& distill = job.settings.distill;
  if (!distill.teacher) return;
  const RunFacts known = facts_of_run(*distill.teacher, distill.run);
  if (!known.class_names.empty() && !job.class_lines.empty() && known.class_names != job.class_lines)
    fail("the classes of the teacher in ", distill.run, ", ", some_classes(known.class_names),
         ", are not those of this run, ", some_classes(job.class_lines),
         ", or have another order; train the teacher on the classes of this run");
  const Standardising its(distill.teacher->data.augment, known.statistics.value_or(job.statistics)),
      mine(job.settings.data.augment, job.statistics);
  if (!its.is_near(mine))
    fail("the teacher in ", distill.run, " was trained on images normalised with ", its.text(), ", and this run has ",
         mine.text(), "; both see the same images, so give data.augment the teacher's mean, std and scale");
}

void check_hint(const Settings& settings, const Plan& run) {
  if (settings.distill.hint_layer.empty()) return;
  const auto check = [&](const Plan& plan, const std::string& layer, const char* whose) {
    if (*hint_of(plan) < plan.boundary) return;
    fail("loss.distill.hint: under strategy ", name_of(run.request.strategy), " workers share the rows of layer '",
         layer, "' of the ", whose, "; name a layer before the first one that is split, or use --parallel dp");
  };
  check(run, settings.distill.hint_layer, "model");
  check(plan_of_teacher(settings, run), settings.distill.hint_teacher_layer, "teacher");
}

int64_t teacher_bytes(const Settings& settings, const Plan& run, int rank) {
  if (!settings.distill.teacher) return 0;
  Plan plan = plan_of_teacher(settings, run);
  const int64_t rows = rows_of(run, run.request.step_rows).of(rank).size(), most = plan.layers.back().out.elements();
  const auto layer = hint_of(plan);
  const int64_t row_bytes =
      (most + (layer ? plan.layer(*layer).in.elements() : 0)) * size_of(activation_type(plan.request.on.precision)) +
      settings.loss.label_numbers() * size_of(DType::kI32);
  const bool alone = plan.ranks() < run.ranks();
  if (alone) plan.request.step_rows = std::max<int64_t>(1, rows);
  return rank_bytes(plan, Mode::kEval, alone ? 0 : rank) + rows * row_bytes;
}

struct Teacher::TrainedNet {
  struct TaughtRows {
    Slice mine;           // rows of the teacher's step that are this rank's
    Tensor logits, hint;  // outputs for these rows; the second is undefined if there is no hint
  };

  TrainedNet(const Settings& student, const Plan& run, Communicator& comm)
      : of_run(run),
        rank(comm.rank()),
        plan(plan_of_teacher(student, run)),
        settings(settings_of_teacher(student, plan)),
        alone(plan.ranks() < run.ranks() ? make_solo_communicator(run.request.on.device) : nullptr),
        worker(settings, plan, alone ? *alone : comm, options(student)) {
    // Rank 0 reads the file for all, also if each of them has the whole network.
    PlanRequest of_all = plan.request;
    of_all.ranks = run.ranks();
    const Groups groups(alone ? make_plan(settings.model, of_all) : plan, comm);
    warn_of_unused(load_weights(student.distill.weights, worker.model, groups), student.distill.weights);
  }

  Step::Options options(const Settings& student) {
    Step::Options its = step_options(settings);
    its.weights = student.distill.weights;
    its.logits = [this](const Tensor& of_round, std::span<const int64_t> rows, const Stream& stream) {
      take(of_round, rows, stream);
    };
    return its;
  }

  // Makes room for steps of the run with so many rows, and binds the network. Processes choose algorithms together
  // (bind_alike), so every rank prepares the numbers of rows of all ranks.
  void prepare(int64_t step_rows) {
    const auto [found, is_new] = outputs.try_emplace(step_rows);
    if (!is_new) return;
    const StepRows rows = rows_of(of_run, step_rows);
    TaughtRows& made = found->second;
    made.mine = rows.of(rank);
    const auto tensor = [&](const Shape& row) {
      return Tensor(row.batch_of(std::max<int64_t>(1, made.mine.size())), activation_type(plan.request.on.precision),
                    plan.request.on.device);
    };
    made.logits = tensor({plan.layers.back().out.elements()});
    if (const auto layer = hint_of(plan)) made.hint = tensor(plan.layer(*layer).in);
    if (!alone) return worker.step.prepare(step_rows, Mode::kEval);
    made.mine = {0, made.mine.size()};
    std::set<int64_t> sizes;
    for (int each = 0; each < of_run.ranks(); ++each) sizes.insert(rows.of(each).size());
    for (const int64_t size : sizes)
      if (size > 0) worker.step.prepare(size, Mode::kEval);
  }

  // Starts the network on the rows of a batch. Its outputs are then ready for work queued on the stream.
  const TaughtRows& start(Batch batch, const Stream& stream) {
    if (under_way) worker.step.finish();
    under_way = false;
    prepare(batch.step_rows);
    now = &outputs.at(batch.step_rows);
    if (alone) batch.step_rows = now->mine.size();
    if (batch.step_rows == 0) return *now;
    if (now->hint.defined()) batch.hint = now->hint.rows(0, batch.images.shape().rows());
    worker.step.stream().wait(stream.record());
    worker.step.start_evaluation(batch);
    stream.wait(worker.step.stream().record());
    under_way = true;
    return *now;
  }

  // Keeps the logits of this rank's rows; a round may have rows of others too.
  void take(const Tensor& of_round, std::span<const int64_t> rows, const Stream& stream) {
    const Slice& mine = now->mine;
    for (int64_t begin = 0, end = 0; begin < std::ssize(rows); begin = end) {
      const int64_t row = rows[static_cast<size_t>(begin)];
      for (end = begin + 1; end < std::ssize(rows) && rows[static_cast<size_t>(end)] == row + end - begin;) ++end;
      const int64_t first = std::max(row, mine.begin), last = std::min(row + end - begin, mine.end);
      if (first < last)
        now->logits.rows(first - mine.begin, last - mine.begin)
            .copy_from(of_round.rows(begin + first - row, begin + last - row), stream);
    }
  }

  const Plan& of_run;
  const int rank;
  const Plan plan;
  const Settings settings;
  const std::unique_ptr<Communicator> alone;  // null: the ranks of the run divide the network
  Worker worker;
  std::map<int64_t, TaughtRows> outputs;  // key: rows of the step; recorded steps keep their addresses
  TaughtRows* now = nullptr;              // the entry for the latest step
  bool under_way = false;
};

Teacher::Teacher(const Settings& settings, const Plan& run, Communicator& comm)
    : loss_(settings.loss),
      scale_(settings.distill.teacher->loss.margin.scale_or_1()),
      net_(std::make_unique<TrainedNet>(settings, run, comm)) {}

Teacher::~Teacher() = default;

void Teacher::prepare(int64_t step_rows) { net_->prepare(step_rows); }

const Batch& Teacher::teach(const Batch& batch, Mode mode, const Stream& stream) {
  const int64_t rows = batch.images.shape().rows();
  taught_ = batch;
  Tensor& labels = labels_[batch.step_rows];
  if (!labels.defined())
    labels = Tensor({std::max<int64_t>(1, rows), loss_.label_numbers()}, DType::kI32, stream.device());
  taught_.labels = labels.rows(0, rows);
  Tensor logits;
  if (mode == Mode::kTrain) {
    const auto& outputs = net_->start(batch, stream);
    logits = outputs.logits.rows(0, rows);
    if (outputs.hint.defined()) taught_.hint = outputs.hint.rows(0, rows);
  }
  write_teacher_targets(net_->plan.request.on, batch.labels, logits.defined() ? &logits : nullptr, scale_, loss_,
                        taught_.labels, stream);
  return taught_;
}

}  // namespace owt
