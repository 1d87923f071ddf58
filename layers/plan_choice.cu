#include "layers/plan_choice.h"

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include "src/core/check.h"
#include "src/core/cuda.h"
#include "src/core/graph.h"
#include "src/core/log_lines.h"
#include "src/core/memory.h"
#include "src/core/plan_cache.h"

namespace owt {
namespace {

constexpr int kFillByte = 0x3c;  // 0.0115 in f32 and in bf16
constexpr int kRepeats = 4;      // of the work in one measurement

std::mutex& measuring() {
  static std::mutex mutex;
  return mutex;
}

std::string this_gpu() {
  int gpu = 0;
  cudaDeviceProp properties{};
  OWT_CUDA(cudaGetDevice(&gpu));
  OWT_CUDA(cudaGetDeviceProperties(&properties, gpu));
  return concat("cudnn ", cudnnGetVersion(), "\n", properties.name, " ", properties.major, ".", properties.minor, " ",
                properties.multiProcessorCount, " multiprocessors\n");
}

std::string key_of(const CudnnGraph& graph, const PlanRules& rules, bool checked) {
  return concat(this_gpu(), "deterministic ", rules.deterministic, " tensor cores ", rules.tensor_cores, " workspace ",
                rules.workspace_limit, " compiled ", rules.most_compiled, " checked ", checked, "\n", graph.text());
}

// Memory for all tensors of a graph.
class Memory {
 public:
  Memory(const CudnnGraph& graph, const Stream& stream) : stream_(stream) {
    int64_t bytes = 0;
    for (const CudnnGraph::Outside& tensor : graph.outside()) {
      offsets_[tensor.id] = bytes;
      bytes += cuda_aligned(tensor.bytes);
    }
    tensors_ = Tensor({bytes}, DType::kU8, Device::kCuda);
    OWT_CUDA(cudaMemsetAsync(tensors_.raw(), kFillByte, static_cast<size_t>(bytes), cuda_stream(stream)));
    for (const CudnnGraph::Outside& tensor : graph.outside())
      bindings_.push_back({tensor.id, tensor.on_host ? static_cast<const void*>(&number_) : at(tensor.id)});
  }

  void* at(CudnnGraph::Id id) { return static_cast<std::byte*>(tensors_.raw()) + offsets_.at(id); }

  void run(const CudnnPlan& plan) {
    if (workspace_.bytes() < plan.workspace_bytes()) {
      workspace_ = Tensor();  // frees it first
      workspace_ = Tensor({plan.workspace_bytes()}, DType::kU8, Device::kCuda);
    }
    plan.run(stream_, bindings_, workspace_.defined() ? workspace_.raw() : nullptr);
  }

 private:
  const Stream& stream_;
  alignas(16) float number_ = 1e-5f;
  std::map<CudnnGraph::Id, int64_t> offsets_;
  std::vector<CudnnPlan::Binding> bindings_;
  Tensor tensors_, workspace_;
};

std::optional<ChosenPlan> first_plan(const CudnnGraph& graph, const PlanRules& rules, const PlanTarget& target) {
  std::optional<ChosenPlan> first;
  for_each_plan(graph, rules, target, [&](CudnnPlan plan) {
    first = {std::move(plan), 0};
    return false;
  });
  return first;
}

std::optional<ChosenPlan> fastest_plan(const CudnnGraph& graph, const PlanRules& rules, const PlanTarget& target,
                                       const Stream& stream, const PlanCheck& check) {
  Memory memory(graph, stream);
  std::optional<ChosenPlan> best;
  for_each_plan(graph, rules, target, [&](CudnnPlan plan) {
    try {
      const auto run = [&] { memory.run(plan); };
      if (check && !check([&](CudnnGraph::Id id) { return memory.at(id); }, run)) return true;
      const double ms = time_work(stream, run, best ? best->ms : 1e9);
      if (!best || ms < best->ms) best = {std::move(plan), ms};
    } catch (const OutOfMemory&) {
      // Its workspace; others need less.
    } catch (const Error& error) {
      log_to_file_only(concat("a plan of cuDNN's was left out: ", error.what()));
    }
    return true;
  });
  return best;
}

// "MS\nJSON", or nothing where there is no plan.
std::string text_of(const std::optional<ChosenPlan>& chosen) {
  return chosen ? concat(chosen->ms, "\n", chosen->plan.json()) : "";
}

std::optional<ChosenPlan> from_text(const std::string& text, const PlanTarget& target) {
  const size_t line = text.find('\n');
  double ms = 0;
  std::istringstream(text.substr(0, line)) >> ms;
  std::optional<CudnnPlan> plan;
  if (line != std::string::npos) plan = CudnnPlan::from_json(text.substr(line + 1), target);
  if (!plan) return {};
  return ChosenPlan{std::move(*plan), ms};
}

}  // namespace

MeasuringTurn::MeasuringTurn() : lock_(measuring()) {}

PlanRules rules_for(Cuda cuda) {
  size_t free = 0, total = 0;
  OWT_CUDA(cudaMemGetInfo(&free, &total));
  PlanRules rules;
  rules.deterministic = cuda.deterministic;
  rules.tensor_cores = cuda.precision != Precision::kFp32;
  rules.workspace_limit = std::min(rules.workspace_limit, static_cast<int64_t>(total) / 16);
  return rules;
}

bool starts_with_nan(const void* memory, DType dtype, const Stream& stream) {
  uint32_t bits = 0;
  copy_bytes(Cuda{}, memory, &bits, size_of(dtype), stream);
  stream.synchronize();
  if (dtype == DType::kBF16) bits <<= 16;  // the upper half of an f32
  return (bits & 0x7fffffff) > 0x7f800000;
}

double time_work(const Stream& stream, const std::function<void()>& queue_work, double best_ms) {
  const auto time = [&](const std::function<void()>& queue) {
    const auto begin = make_cuda_event(), end = make_cuda_event();
    OWT_CUDA(cudaEventRecord(begin.get(), cuda_stream(stream)));
    queue();
    OWT_CUDA(cudaEventRecord(end.get(), cuda_stream(stream)));
    OWT_CUDA(cudaEventSynchronize(end.get()));
    float ms = 0;
    OWT_CUDA(cudaEventElapsedTime(&ms, begin.get(), end.get()));
    return static_cast<double>(ms);
  };
  queue_work();
  if (const double ms = time(queue_work); ms > 2 * best_ms + 0.1) return ms;  // 0.1: what the host may have added
  const Graph work = Graph::record(stream, [&] {
    for (int i = 0; i < kRepeats; ++i) queue_work();
  });
  std::array<double, 3> ms{};
  for (double& each : ms) each = time([&] { work.launch(stream); }) / kRepeats;
  std::sort(ms.begin(), ms.end());
  return std::max(ms[1], 1e-6);  // 0 would mean: not measured
}

std::string remembered(const std::string& what, const std::function<std::string()>& measure) {
  const std::string key = this_gpu() + what;
  if (const auto known = PlanCache::process().find(key)) return *known;
  const std::string outcome = measure();
  if (outcome.empty())
    PlanCache::process().store_for_this_process(key, outcome);
  else
    PlanCache::process().store(key, outcome);
  return outcome;
}

std::optional<ChosenPlan> choose_plan(const CudnnGraph& graph, const PlanRules& rules, const Stream& stream,
                                      const PlanCheck& check) {
  const PlanTarget target = PlanTarget::this_gpu(stream);
  const std::string key = key_of(graph, rules, check != nullptr);
  if (const auto known = PlanCache::process().find(key)) {
    if (known->empty()) return {};
    if (auto plan = from_text(*known, target)) return plan;
    log_warning(
        concat("cuDNN does not take its own plan back from ", PlanCache::process().path_of(key), "; measuring anew"));
  }
  std::optional<ChosenPlan> chosen;
  try {
    chosen = fastest_plan(graph, rules, target, stream, check);
  } catch (const OutOfMemory&) {
    log_warning("too little memory to measure cuDNN's plans; taking its first choice");
    if (!check) chosen = first_plan(graph, rules, target);
    PlanCache::process().store_for_this_process(key, text_of(chosen));
    return chosen;
  }
  if (chosen)
    PlanCache::process().store(key, text_of(chosen));
  else  // perhaps all failed for a reason that passes
    PlanCache::process().store_for_this_process(key, text_of(chosen));
  return chosen;
}

}  // namespace owt
