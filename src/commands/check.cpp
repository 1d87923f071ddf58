#include "src/commands/check.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>

#include "src/comm/on_host.h"
#include "src/commands/auto_strategy.h"
#include "src/commands/measured_shares.h"
#include "src/core/philox.h"
#include "src/plan/plan_rows.h"
#include "src/recipe/strategy_settings.h"
#include "src/system/log.h"
#include "src/train/made_up_batch.h"
#include "src/train/memory_check.h"
#include "src/train/session.h"
#include "src/train/worker.h"

namespace owt {
namespace {

// With such a large rate the update is the gradient, and the rounding of the weight loses nothing of it.
constexpr double kRate = 1024;
// by which an element is moved, relative to the size of the weights
constexpr double kDistances[] = {0.03, 0.01, 0.003, 0.001};
constexpr double kBiases = 0.1;  // standard deviation of the drawn biases
constexpr int64_t kRowsOfRank = 8;
// Relative errors of gradients, compared with difference quotients of the loss: the largest correct error, the same in
// units of the noise, and the noise above which the result is unclear.
constexpr double kRight = 0.03, kOfNoise = 5, kNoisy = 0.1;
constexpr double kRounding = 0.01;  // largest correct error compared with one worker: a relu may switch
constexpr std::chrono::seconds kBetweenReports{5};
constexpr double kLastBit = 6e-8;  // relative rounding error of f32
// If the summands of a gradient cancel, e.g. for a bias before a normalisation, only rounding errors are left. Relative
// to the gradient of all parameters.
constexpr double kSumsToNothing = 1e-3;
constexpr double kNothing = 1e-4;  // relative to the gradient of all parameters: no gradient

double square(double x) { return x * x; }
double relative(double difference, double size) { return difference / std::max(size, 1e-300); }

// The results of one worker, in the order of the model's parameters.
struct Reference {
  double loss = 0;
  std::vector<Tensor> gradients;  // whole tensors, on the host
};

// One element of a parameter, by its place in the whole tensor in memory order.
struct Element {
  int64_t row = 0, column = 0;
};

class RankCheck {
 public:
  RankCheck(const Settings& settings, const Plan& plan, Communicator& comm)
      : plan_(plan), worker_(settings, plan, comm), random_(settings.run.seed, RandomStream::kSynthetic, 0, "check") {
    draw_weights(settings.run.seed);
    const int64_t rows = plan.request.step_rows;
    worker_.step.prepare(rows);
    batch_ = on_all_hosts(comm, [&] {
      return made_up_batch(settings.model, rows_of(plan, rows).of(comm.rank()), plan.request,
                           worker_.step.wanted_images(rows));
    });
    for (Param* param : worker_.model.params())
      if (param->role == ParamRole::kTrained && param->lr_mult > 0) params_.push_back(param);
    for (Param* param : params_) start_.push_back(host_copy(*param));
    learn();
  }

  double loss() const { return loss_; }
  Reference reference() const { return {loss_, gradients_}; }

  // Checks every parameter; the result is the same on all ranks. reference: may be null.
  std::vector<CheckedParameter> check(int samples, const Reference* reference) {
    std::vector<CheckedParameter> checked(params_.size());
    double all = 0;
    for (size_t p = 0; p < params_.size(); ++p) {
      checked[p].name = params_[p]->name;
      checked[p].elements = params_[p]->full_shape.elements();
      checked[p].gradient = std::sqrt(sums(p, nullptr).size);
      all += square(checked[p].gradient);
    }
    for (size_t p = 0; p < params_.size(); ++p) {
      if (reference) compare(p, *reference, std::sqrt(all), checked[p]);
      hold_against_loss(p, samples, std::sqrt(all), checked[p]);
      report_progress(p + 1);
    }
    return checked;
  }

 private:
  void report_progress(size_t done) {
    const auto now = std::chrono::steady_clock::now();
    if (worker_.comm.rank() != 0 || now - reported_ < kBetweenReports) return;
    log_info("checked {} of {} parameters", done, params_.size());
    reported_ = now;
  }

  // Recipes begin with small weights and without biases, so that every relu is near its kink and differences give no
  // slope. These weights give activations of size one.
  void draw_weights(uint64_t seed) {
    for (Param* param : worker_.model.params()) {
      if (param->full_shape.rank() > 1)
        param->init = {.type = Initializer::Type::kMsra};
      else if (param->is_bias())
        param->init = {.type = Initializer::Type::kGaussian, .std = kBiases};
    }
    worker_.model.initialize(seed);
  }

  static Tensor host_copy(const Param& param) {
    return param.value.defined() ? param.value.to(Device::kCpu).clone() : Tensor();
  }

  double step(double rate) {
    const StepResult result = worker_.step.train(batch_, 0, {rate, rate}, false, StepKind::kSynchronous);
    return result.sums.loss / static_cast<double>(result.sums.rows);
  }

  // Computes the gradients from the effect of an update on the weights, and restores the weights.
  void learn() {
    loss_ = step(kRate);
    worker_.step.settle();
    for (size_t p = 0; p < params_.size(); ++p) {
      Param& param = *params_[p];
      gradients_.push_back(host_copy(param));
      if (!gradients_[p].defined()) continue;
      const std::span<const float> before{start_[p].data(), static_cast<size_t>(start_[p].elements())};
      float* gradient = gradients_[p].data();
      for (size_t i = 0; i < before.size(); ++i)
        gradient[i] = static_cast<float>((static_cast<double>(before[i]) - static_cast<double>(gradient[i])) /
                                         (kRate * param.lr_mult));
      param.set_value(start_[p]);
    }
    worker_.step.take_changed_weights();
  }

  int64_t width(size_t p) const { return params_[p]->full_shape.elements() / params_[p]->full_shape.rows(); }
  Slice columns(size_t p) const { return params_[p]->columns.value_or(Slice{0, width(p)}); }

  // Calls function(element of the whole tensor, its index among this rank's elements) for all elements on this rank.
  template <class Function>
  void for_each_here(size_t p, const Function& function) const {
    if (!gradients_[p].defined()) return;
    const Slice rows = params_[p]->part, columns = this->columns(p);
    int64_t i = 0;
    for (int64_t row = rows.begin; row < rows.end; ++row)
      for (int64_t column = columns.begin; column < columns.end; ++column) function(Element{row, column}, i++);
  }

  bool holds(size_t p, const Element& at) const {
    const Slice rows = params_[p]->part, columns = this->columns(p);
    return gradients_[p].defined() && rows.begin <= at.row && at.row < rows.end && columns.begin <= at.column &&
           at.column < columns.end;
  }
  int64_t number_here(size_t p, const Element& at) const {
    return (at.row - params_[p]->part.begin) * columns(p).size() + at.column - columns(p).begin;
  }

  std::vector<double> summed(const std::vector<double>& values) const {
    return on_host::sum(worker_.step.groups().world(), values, plan_.request.on.device);
  }

  // Sums of squares over the whole tensor; an element counts once, however many ranks have it.
  struct Squares {
    double difference = 0, size = 0;
  };
  Squares sums(size_t p, const Tensor* whole) const {
    Squares mine;
    double count = 0;
    for_each_here(p, [&](const Element& at, int64_t i) {
      const auto here = static_cast<double>(gradients_[p].data()[i]);
      const double there = whole ? static_cast<double>(whole->data()[at.row * width(p) + at.column]) : here;
      mine.difference += square(here - there);
      mine.size += square(there);
      ++count;
    });
    const std::vector<double> all = summed({mine.difference, mine.size, count});
    const double copies = all[2] / static_cast<double>(params_[p]->full_shape.elements());
    return {all[0] / copies, all[1] / copies};
  }

  void compare(size_t p, const Reference& reference, double all, CheckedParameter& to) const {
    const Squares squares = sums(p, &reference.gradients[p]);
    to.from_one = relative(std::sqrt(squares.difference), std::sqrt(squares.size) + kSumsToNothing * all);
    to.of_workers = *to.from_one <= kRounding ? Verdict::kRight : Verdict::kWrong;
  }

  // The element with the largest gradient of all ranks, and random elements.
  std::vector<Element> elements_to_move(size_t p, int samples) const {
    std::vector<double> mine = {-1, 0, 0};
    for_each_here(p, [&](const Element& at, int64_t i) {
      const auto gradient = std::fabs(static_cast<double>(gradients_[p].data()[i]));
      if (gradient > mine[0]) mine = {gradient, static_cast<double>(at.row), static_cast<double>(at.column)};
    });
    const std::vector<double> all = on_host::gather(worker_.step.groups().world(), mine, plan_.request.on.device);
    size_t best = 0;
    for (size_t i = 0; i < all.size(); i += 3)
      if (all[i] > all[best]) best = i;
    std::vector<Element> chosen = {{static_cast<int64_t>(all[best + 1]), static_cast<int64_t>(all[best + 2])}};
    const int64_t count = params_[p]->full_shape.elements();
    for (int s = 1; s < std::min<int64_t>(samples, count); ++s) {
      const auto drawn =
          static_cast<int64_t>(random_.bits(p * 64 + static_cast<size_t>(s)) % static_cast<uint64_t>(count));
      chosen.push_back({drawn / width(p), drawn % width(p)});
    }
    return chosen;
  }

  void move(size_t p, const Element& at, double by) {
    if (!holds(p, at)) return;
    const int64_t row = at.row - params_[p]->part.begin;
    Tensor moved = start_[p].rows(row, row + 1).clone();
    float& value = moved.data()[at.column - columns(p).begin];
    value = static_cast<float>(static_cast<double>(value) + by);
    params_[p]->set_rows(row, moved);
  }

  double difference_quotient(size_t p, const Element& at, double distance) {
    move(p, at, distance);
    const double above = step(0);
    move(p, at, -distance);
    const double below = step(0);
    move(p, at, 0);
    return (above - below) / (2 * distance);
  }

  // Over small distances rounding errors of the loss dominate, over large ones its curvature. The quotient is taken
  // where two neighbouring distances agree best. They may agree by chance, so the noise is at least the rounding error.
  struct Quotient {
    double value = 0, noise = 0;
  };
  Quotient best_quotient(size_t p, const Element& at, double size) {
    Quotient best{0, INFINITY};
    double last = 0;
    for (const double& each : kDistances) {
      const double distance = each * size, now = difference_quotient(p, at, distance);
      const double noise = std::fabs(now - last) + kLastBit * loss_ / distance;
      if (&each != kDistances && noise < best.noise) best = {now, noise};
      last = now;
    }
    return best;
  }

  void hold_against_loss(size_t p, int samples, double all, CheckedParameter& to) {
    double squares = 0, count = 0;
    for_each_here(p, [&](const Element&, int64_t i) {
      squares += square(static_cast<double>(start_[p].data()[i]));
      ++count;
    });
    const std::vector<double> of_all = summed({squares, count});
    const double scale = std::sqrt(of_all[0] / of_all[1]);
    double size = 0, error = 0, noise = 0;
    for (const Element& at : elements_to_move(p, samples)) {
      const bool here = holds(p, at);
      const double mine = here ? static_cast<double>(gradients_[p].data()[number_here(p, at)]) : 0;
      const std::vector<double> held = summed({mine, here ? 1.0 : 0.0});
      const double gradient = held[0] / held[1];
      const Quotient quotient = best_quotient(p, at, scale);
      size += square(std::max(std::fabs(gradient), std::fabs(quotient.value)));
      error += square(gradient - quotient.value);
      noise += square(quotient.noise);
    }
    size = std::sqrt(size) + kNothing * all;
    to.error = relative(std::sqrt(error), size);
    to.noise = relative(std::sqrt(noise), size);
    to.of_loss = to.error <= std::max(kRight, kOfNoise * std::min(to.noise, kNoisy)) ? Verdict::kRight
                 : to.noise > kNoisy                                                 ? Verdict::kUnclear
                                                                                     : Verdict::kWrong;
  }

  const Plan& plan_;
  Worker worker_;
  Philox random_;
  Batch batch_;
  std::vector<Param*> params_;  // learning parameters
  std::vector<Tensor> start_;   // their initial values
  std::chrono::steady_clock::time_point reported_ = std::chrono::steady_clock::now();
  double loss_ = 0;
  std::vector<Tensor> gradients_;  // the parts on this rank; undefined if it has none
};

// Finds a layer that computes statistics over a worker's rows, so that the result depends on the number of workers.
const LayerPlan* sees_workers(const std::vector<LayerPlan>& layers) {
  for (const LayerPlan& at : layers) {
    if (const LayerPlan* inner = sees_workers(at.inner)) return inner;
    if (at.inner.empty() && at.type == "batch_norm" && at.learns() && at.row_group == 1 && at.forward_sums.empty())
      return &at;
  }
  return nullptr;
}

// Sets plain SGD on whole steps, whose updates are their gradients.
void settle(Settings& settings, int64_t rows) {
  make_synchronous(settings.parallel);
  settings.optimizer = {};
  settings.optimizer.learning_rate = 1;
  settings.optimizer.momentum = settings.optimizer.decay = 0;
  settings.ema = {};
  if (settings.run.precision != Precision::kFp32)
    log_info("checking in fp32, not {}: its rounding would hide errors", name_of(settings.run.precision));
  settings.run.precision = Precision::kFp32;
  if (rows == 0) {
    const int64_t group = settings.model.row_group;
    const int64_t each = (std::max(kRowsOfRank, parts_of_rows(settings) * group) + group - 1) / group * group;
    rows = std::min(each * settings.parallel.workers, settings.step_rows());
  }
  settings.data.batch = rows;
  settings.data.batch_per_rank = 0;
}

Settings alone(Settings settings) {
  settings.parallel = {};
  settings.parallel.strategy = kPlainDataParallel;
  settings.data.accumulate = 1;
  return settings;
}

std::string described(const Settings& settings, const Plan& plan) {
  const std::string workers = plan.ranks() == 1
                                  ? std::string("1 worker")
                                  : concat(plan.ranks(), " workers under ", name_of(settings.parallel.strategy));
  return concat(plan.request.step_rows, " rows on ", workers, ", fp32 on ",
                plan.request.on.device == Device::kCpu ? "the CPU" : "the GPU");
}

}  // namespace

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kRight:
      return "right";
    case Verdict::kWrong:
      return "wrong";
    case Verdict::kUnclear:
      return "unclear";
  }
  fail("no such verdict");
}

bool CheckOutcome::wrong() const {
  return std::any_of(parameters.begin(), parameters.end(), [](const CheckedParameter& at) {
    return at.of_loss == Verdict::kWrong || (at.from_one && at.of_workers == Verdict::kWrong);
  });
}

std::string CheckOutcome::table() const {
  std::string text = format("Gradients of one step: {}, loss {:.6f}\n\n", what, loss);
  text += format("{:<28} {:>10} {:>11}   {:>8} {:>8}  {:<8}", "parameter", "elements", "|gradient|", "error", "noise",
                 "loss");
  text += loss_of_one ? format("   {:>10}  {}\n", "difference", "one worker") : "\n";
  for (const CheckedParameter& at : parameters) {
    text += format("{:<28} {:>10} {:>11.3g}   {:>8.1e} {:>8.1e}  {:<8}", at.name, at.elements, at.gradient, at.error,
                   at.noise, name_of(at.of_loss));
    if (at.from_one)
      text += format("   {:>10.1e}  {}", *at.from_one, at.of_workers == Verdict::kRight ? "rounding" : "wrong");
    text += "\n";
  }
  text += format(
      "\n'error': relative difference of the gradients of {} element{} of each parameter from difference quotients of "
      "the loss;\n'noise': relative difference of these quotients from each other. ",
      samples, samples == 1 ? "" : "s");
  if (loss_of_one)
    text += format("'difference': of the whole gradients from the gradients of one worker, whose loss is {:.6f}.\n",
                   *loss_of_one);
  else
    text += concat(not_compared, ".\n");
  return text;
}

CheckOutcome check_gradients(Settings settings, const CheckOptions& options) {
  const Session session(settings, options.threads);
  settle_shares(settings, session);
  settle_strategy(settings, session);
  settle(settings, options.rows);
  const Plan plan = settings.plan_to_run();
  check_memory(plan, MemoryUse{});
  CheckOutcome outcome;
  outcome.what = described(settings, plan);
  outcome.samples = options.samples;
  std::optional<Reference> one;
  if (plan.ranks() == 1 && plan.request.slices == 1) {
    outcome.not_compared = "There is only one worker, so there is nothing to compare";
  } else if (const LayerPlan* layer = sees_workers(plan.layers)) {
    outcome.not_compared = concat("Nothing was compared with one worker: '", layer->name,
                                  "' normalises over the rows of a worker (batch_norm's rows = 0)");
  } else {
    const Settings of_one = alone(settings);
    const Plan plan_of_one = of_one.plan_to_run();
    session.run(1, [&](Communicator& comm) { one = RankCheck(of_one, plan_of_one, comm).reference(); });
    outcome.loss_of_one = one->loss;
  }
  session.run(plan.ranks(), [&](Communicator& comm) {
    RankCheck rank(settings, plan, comm);
    const std::vector<CheckedParameter> checked = rank.check(options.samples, one ? &*one : nullptr);
    if (comm.rank() != 0) return;
    outcome.loss = rank.loss();
    outcome.parameters = checked;
  });
  return outcome;
}

}  // namespace owt
