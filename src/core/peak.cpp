#include "src/core/peak.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <optional>
#include <sstream>

#include "src/core/cpu_bf16.h"
#include "src/core/onednn.h"
#include "src/core/threads.h"
#include "src/system/check.h"
#include "src/system/cpu_level.h"
#include "src/system/log.h"
#include "src/system/processor.h"

namespace owt {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kEnough(60);
constexpr int kLeastTimes = 3;

// Without bf16 instructions, bf16 products run in f32.
DType factors_of(Precision precision) {
  return precision == Precision::kBf16 && cpu_has_bf16() ? DType::kBF16 : DType::kF32;
}

// The shortest of several runs, since the first ones wait for memory, clock and code.
template <class Work>
double seconds_of(const Work& work) {
  const auto end = Clock::now() + kEnough;
  double shortest = 0;
  for (int i = 0; i < kLeastTimes || Clock::now() < end; ++i) {
    const auto begin = Clock::now();
    work();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    shortest = i == 0 ? seconds : std::min(shortest, seconds);
  }
  return shortest;
}

double product_flops_per_s(DType factors) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const int64_t m = 256 * team_size(), n = 512, k = 512;
  Tensor a({m, k}, factors), b({k, n}, factors), c({m, n});
  const auto memory = [&](Tensor& tensor) {
    tensor.zero(Stream());
    const dnnl::memory::desc form({tensor.shape()[0], tensor.shape()[1]}, onednn::type_of(tensor.dtype()),
                                  dnnl::memory::format_tag::ab);
    return dnnl::memory(form, engine, tensor.raw());
  };
  dnnl::memory left = memory(a), right = memory(b), product = memory(c);
  const auto description =
      onednn::describe<dnnl::matmul>(engine, {}, left.get_desc(), right.get_desc(), product.get_desc());
  dnnl::matmul multiply(description);
  const double seconds = seconds_of([&] {
    multiply.execute(stream, {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, product}});
    stream.wait();
  });
  return 2.0 * static_cast<double>(m * n * k) / seconds;
}

// The last-level caches that `threads` threads may have together. A processor has several of them if groups of its
// cores share one each; sysconf() returns their total size.
int64_t last_level_cache_bytes(int threads) {
  int64_t kib = 0;
  std::ifstream("/sys/devices/system/cpu/cpu0/cache/index3/size") >> kib;
  const int64_t all = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return kib > 0 ? std::min(all, threads * (kib << 10)) : all;
}

// The teams together sweep twice the size of these caches, limited to 64 to 256 MiB.
int64_t swept_floats(int teams) {
  return std::clamp<int64_t>(2 * last_level_cache_bytes(teams * team_size()), int64_t{64} << 20, int64_t{256} << 20) /
         4 / teams;
}

double memory_bytes_per_s(int teams) {
  Tensor memory({swept_floats(teams)});
  const auto sweep = [values = memory.data<float>(), size = memory.elements()] {
    parallel_for(size, 1, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[i] = 0.5f * values[i] + 1;
    });
  };
  memory.zero(Stream());
  return 2.0 * static_cast<double>(memory.bytes()) / seconds_of(sweep);
}

std::string text_of(const Peak& peak) { return format("{:.6g} {:.6g}", peak.flops_per_s, peak.bytes_per_s); }

std::optional<Peak> peak_in(const std::string& text) {
  Peak peak;
  std::istringstream(text) >> peak.flops_per_s >> peak.bytes_per_s;
  if (peak.flops_per_s > 0 && peak.bytes_per_s > 0) return peak;
  return {};
}

}  // namespace

double Peak::seconds(double flops, double bytes) const { return std::max(flops / flops_per_s, bytes / bytes_per_s); }

bool Peak::computes(double flops, double bytes) const { return flops / flops_per_s >= bytes / bytes_per_s; }

std::string peak_key(Precision precision, int teams) {
  const char* factors = factors_of(precision) == DType::kBF16 ? "bf16" : "f32";
  return concat("peak 1\n", processor_name(), "\n", name_of(allowed_cpu_level()), " oneDNN ", onednn::version(), "\n",
                factors, ", ", teams, " teams of ", team_size(), " threads on ", hardware_cores(), " cores");
}

std::optional<Peak> known_peak(Precision precision, int teams, PlanCache& cache) {
  const auto text = cache.find(peak_key(precision, teams));
  return text ? peak_in(*text) : std::nullopt;
}

Peak measure_peak(Precision precision, int teams, const std::function<void()>& meet, PlanCache& cache) {
  Peak peak;
  meet();
  peak.flops_per_s = product_flops_per_s(factors_of(precision));
  meet();
  peak.bytes_per_s = memory_bytes_per_s(teams);
  const std::string text = text_of(peak);
  cache.store(peak_key(precision, teams), text);
  return *peak_in(text);  // rounded as for processes that find it in the cache
}

}  // namespace owt
