#include "layers/gpu/plan_choice.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "src/core/cuda.h"
#include "src/core/graph.h"
#include "src/core/memory.h"
#include "src/core/profiler.h"
#include "src/system/check.h"
#include "src/system/log_lines.h"
#include "src/system/plan_cache.h"

namespace owt {
namespace {

constexpr size_t kRuns = 9;  // in one measurement; the two fastest and the two slowest are discarded
constexpr size_t kFinalists = 4;
constexpr std::chrono::milliseconds kWarmUp{100};

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
  return concat(this_gpu(), rules.text(), " checked ", checked, "\n", graph.text());
}

// Evicts everything from the GPU's L2 cache. Otherwise work that finds its tensors there would seem faster than in a
// step.
class Flush {
 public:
  Flush() : memory_({2 * int64_t{attribute_of_gpu(cudaDevAttrL2CacheSize)}}, DType::kU8, Device::kCuda) {}
  void queue(const Stream& stream) { memory_.zero(stream); }

 private:
  Tensor memory_;
};

// An idle GPU has slow clocks, and code is loaded on its first run. So the first measurement would seem slow.
void warm_up(const Stream& stream, const std::function<void()>& queue_work) {
  static std::mutex& mutex = *new std::mutex;
  static std::set<int>& warm = *new std::set<int>;
  int gpu = 0;
  OWT_CUDA(cudaGetDevice(&gpu));
  const std::lock_guard lock(mutex);
  if (warm.count(gpu) > 0) return;
  for (const auto end = std::chrono::steady_clock::now() + kWarmUp; std::chrono::steady_clock::now() < end;) {
    queue_work();
    stream.synchronize();
  }
  warm.insert(gpu);
}

// The time of a run between two marks on the GPU, within a graph. As in a step, this includes the overhead of a graph
// node, which matters for kernels of a few microseconds.
double ms_of_a_run(const Stream& stream, Flush& flush, const std::function<void()>& queue_work) {
  const std::unique_ptr<Marks> marks = make_marks(Cuda{}, stream);
  const Graph runs = Graph::record(stream, [&] {
    for (size_t run = 0; run < kRuns; ++run) {
      flush.queue(stream);
      marks->set(2 * run);
      queue_work();
      marks->set(2 * run + 1);
    }
  });
  runs.launch(stream);
  marks->wait(2 * kRuns - 1);
  std::array<double, kRuns> ms{};
  for (size_t run = 0; run < kRuns; ++run) ms[run] = marks->ms(2 * run, 2 * run + 1);
  std::sort(ms.begin(), ms.end());
  return std::accumulate(ms.begin() + 2, ms.end() - 2, 0.0) / (kRuns - 4);
}

double time_work(const Stream& stream, Flush& flush, const std::function<void()>& queue_work, double best_ms) {
  warm_up(stream, queue_work);
  queue_work();
  const std::unique_ptr<Marks> marks = make_marks(Cuda{}, stream);
  marks->set(0);
  queue_work();
  marks->set(1);
  marks->wait(1);
  if (const double ms = marks->ms(0, 1); ms > 2 * best_ms + 0.1) return ms;  // 0.1: overhead of the host
  return std::max(ms_of_a_run(stream, flush, queue_work), 1e-6);             // 0 means: not measured
}

// Memory for all tensors of a graph and for measuring.
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
      workspace_ = Tensor();  // free it first
      workspace_ = Tensor({plan.workspace_bytes()}, DType::kU8, Device::kCuda);
    }
    plan.run(stream_, bindings_, workspace_.defined() ? workspace_.raw() : nullptr);
  }

  double time(const CudnnPlan& plan, double best_ms) {
    return time_work(
        stream_, flush_, [&] { run(plan); }, best_ms);
  }

 private:
  const Stream& stream_;
  alignas(16) float number_ = 1e-5f;
  std::map<CudnnGraph::Id, int64_t> offsets_;
  std::vector<CudnnPlan::Binding> bindings_;
  Tensor tensors_, workspace_;
  Flush flush_;
};

std::optional<ChosenPlan> first_plan(const CudnnGraph& graph, const PlanRules& rules, const PlanTarget& target) {
  std::optional<ChosenPlan> first;
  for_each_plan(graph, rules, target, [&](CudnnPlan plan) {
    first = {std::move(plan), 0};
    return PlanVerdict::kEnough;
  });
  return first;
}

std::optional<ChosenPlan> fastest_plan(const CudnnGraph& graph, const PlanRules& rules, const PlanTarget& target,
                                       const Stream& stream, const PlanCheck& check) {
  Memory memory(graph, stream);
  std::vector<CudnnPlan> plans;
  std::vector<double> ms;
  for_each_plan(graph, rules, target, [&](CudnnPlan plan) {
    try {
      if (check && !check([&](CudnnGraph::Id id) { return memory.at(id); }, [&] { memory.run(plan); }))
        return PlanVerdict::kRefused;
      ms.push_back(memory.time(plan, ms.empty() ? 1e9 : *std::min_element(ms.begin(), ms.end())));
      plans.push_back(std::move(plan));
      return PlanVerdict::kTaken;
    } catch (const OutOfMemory&) {
      // No memory for its workspace; other plans need less.
    } catch (const Error& error) {
      log_to_file_only(concat("a plan of cuDNN's was left out: ", error.what()));
    }
    return PlanVerdict::kRefused;
  });
  if (plans.empty()) return {};
  const Fastest best = fastest_of(ms, [&](size_t i) { return memory.time(plans[i], 1e9); });
  return ChosenPlan{std::move(plans[best.index]), best.ms};
}

// "MS\nJSON", or "" if there is no plan.
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
  if (dtype == DType::kBF16) bits <<= 16;  // bf16 is the upper half of an f32
  return (bits & 0x7fffffff) > 0x7f800000;
}

Fastest fastest_of(const std::vector<double>& ms, const std::function<double(size_t)>& again) {
  std::vector<size_t> order(ms.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ms[a] < ms[b]; });
  order.resize(std::min(order.size(), kFinalists));
  Fastest best{order[0], std::numeric_limits<double>::infinity()};
  for (const size_t i : order)
    if (const double least = std::min(ms[i], again(i)); least < best.ms) best = {i, least};
  return best;
}

double time_work(const Stream& stream, const std::function<void()>& queue_work, double best_ms) {
  Flush flush;
  return time_work(stream, flush, queue_work, best_ms);
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
  else  // the cause may be temporary
    PlanCache::process().store_for_this_process(key, text_of(chosen));
  return chosen;
}

}  // namespace owt
