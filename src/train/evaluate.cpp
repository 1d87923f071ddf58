#include "src/train/evaluate.h"

#include <chrono>
#include <optional>

#include "src/comm/on_host.h"
#include "src/core/conversions.h"
#include "src/plan/plan_rows.h"
#include "src/system/log.h"
#include "src/train/predictions.h"
#include "src/train/weights.h"

namespace owt {
namespace {

// The logits of one evaluation step that this rank has, on the host.
class StepLogits {
 public:
  // Allocates its memory here, since allocation may wait for a GPU.
  StepLogits(const Plan& plan, int64_t classes)
      : host_(Tensor::shared_with(plan.request.on.device, {plan.request.step_rows, classes},
                                  activation_type(plan.request.on.precision))) {}

  void clear() { rows_.clear(); }
  // Queues a copy on the stream.
  void take(const Tensor& logits, std::span<const int64_t> rows, const Stream& stream) {
    const int64_t begin = std::ssize(rows_);
    rows_.insert(rows_.end(), rows.begin(), rows.end());
    host_.rows(begin, std::ssize(rows_)).copy_from(logits, stream);
  }
  std::span<const int64_t> rows() const { return rows_; }
  Tensor f32() const { return f32_on_host(host_.rows(0, std::ssize(rows_))); }

 private:
  Tensor host_;
  std::vector<int64_t> rows_;
};

// One rank of `owt eval`.
class Evaluator {
 public:
  Evaluator(const Job& job, const EvaluationRequest& request, Communicator& comm)
      : job_(job), request_(request), comm_(comm), worker_(job.settings, job.plan, comm, options()) {
    const auto unused = load_weights(job.weights, worker_.model, step_.groups());
    if (comm.rank() == 0) warn_of_unused(unused, job.weights);
    on_all_hosts(comm, [&] { batches_ = evaluation_batches(job, comm.rank(), request.split, request.views); });
    step_.feed_from(*batches_);
  }

  Evaluation run() { return request_.wants_logits() ? predict() : evaluate(worker_, *batches_); }

 private:
  Step::Options options() {
    Step::Options options = step_options(job_.settings);
    options.weights = job_.weights;
    if (!request_.wants_logits()) return options;
    logits_.emplace(job_.plan, classes_here(job_.plan, comm_.rank()).size());
    const bool counts = job_.plan.sharded_loss || counts_rows(job_.plan, comm_.rank());
    options.logits = [this, counts](const Tensor& logits, std::span<const int64_t> rows, const Stream& stream) {
      if (counts) logits_->take(logits, rows, stream);
    };
    return options;
  }

  Evaluation predict() {
    const Dataset& images = *job_.images(request_.split);
    const Plan& plan = job_.plan;
    const LossSettings& loss = job_.settings.loss;
    ClassShard shard;
    if (plan.sharded_loss) shard = {classes_here(plan, comm_.rank()), &step_.groups().model(), plan.request.on.device};
    Predictions predictions(images, job_.settings.model.classes, request_.views, plan.request.step_rows, loss.type,
                            shard, loss.margin.scale_or_1());
    for (int64_t i = 0; i < batches_->steps_per_epoch(); ++i) {
      logits_->clear();
      const Batch& batch = batches_->next(step_.stream());
      step_.evaluate(batch);
      predictions.add(batch, logits_->rows(), logits_->f32());
    }
    predictions.gather(comm_, job_.plan.request.on.device);
    if (comm_.rank() == 0 && !request_.predictions.empty()) predictions.write_csv(request_.predictions);
    if (comm_.rank() == 0 && !request_.confusion.empty()) predictions.write_confusion_csv(request_.confusion);
    Evaluation result = predictions.evaluation();
    if (request_.per_class) result.classes = predictions.by_class();
    return result;
  }

  const Job& job_;
  const EvaluationRequest& request_;
  Communicator& comm_;
  std::optional<StepLogits> logits_;  // if predictions are wanted
  Worker worker_;
  Step& step_ = worker_.step;
  std::unique_ptr<BatchSource> batches_;
};

}  // namespace

Slice classes_here(const Plan& plan, int rank) {
  const LayerPlan& last = plan.layers.back();
  return plan.sharded_loss ? last.parts[static_cast<size_t>(plan.place_of(rank))] : Slice{0, last.out.elements()};
}

int64_t prediction_bytes(const Plan& plan, const EvaluationRequest& request, const Dataset& images, int rank) {
  const bool scores = request.wants_logits() && images.targets() > 0 && plan.request.loss.type == LossType::kLogistic;
  const int64_t table = scores ? 2 * images.size() * images.targets() * size_of(DType::kF64) : 0;  // and its sum
  if (!request.wants_logits() || (!plan.sharded_loss && !counts_rows(plan, rank))) return table;
  int64_t rows = 0;
  for (const StepRows::RoundSize& round : rows_of(plan, plan.request.step_rows).round_sizes(rank)) rows += round.rows;
  const DType type = activation_type(plan.request.on.precision);
  const int64_t copies = size_of(type) + (type == DType::kF32 ? 0 : 4), sums = request.views.count > 1 ? 8 : 0;
  return rows * classes_here(plan, rank).size() * (copies + sums) + table;
}

LossSums evaluated_sums(Worker& worker, BatchSource& batches) {
  Step& step = worker.step;
  LossSums sums;
  int in_flight = 0;
  for (int64_t i = 0; i < batches.steps_per_epoch(); ++i, ++in_flight) {
    if (in_flight == step.most_in_flight()) sums += step.finish().sums, --in_flight;
    worker.start_evaluation(batches.next(step.stream()));
  }
  for (; in_flight > 0; --in_flight) sums += step.finish().sums;
  return sums;
}

Evaluation evaluation_of(const LossSums& sums) {
  const double images = static_cast<double>(sums.rows);
  return {sums.loss / images, static_cast<double>(sums.top1) / images, static_cast<double>(sums.top5) / images,
          sums.rows};
}

Evaluation evaluate(Worker& worker, BatchSource& batches) { return evaluation_of(evaluated_sums(worker, batches)); }

Evaluation evaluate_weights(const Job& job, const EvaluationRequest& request, const Session& session) {
  Evaluation result;
  session.run(job.plan.ranks(), [&](Communicator& comm) {
    Evaluator evaluator(job, request, comm);
    const auto begin = std::chrono::steady_clock::now();
    Evaluation mine = evaluator.run();
    mine.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (comm.rank() == 0) result = std::move(mine);
  });
  return result;
}

double mean_top1(const std::vector<ClassAccuracy>& classes) {
  double sum = 0;
  for (const ClassAccuracy& of : classes) sum += static_cast<double>(of.top1) / static_cast<double>(of.images);
  return classes.empty() ? 0 : sum / static_cast<double>(classes.size());
}

std::string accuracy_text(const Evaluation& of, int64_t classes) {
  return format("top-1 {:.2f} %{}", 100 * of.top1, has_top5(classes) ? format(", top-5 {:.2f} %", 100 * of.top5) : "");
}

}  // namespace owt
