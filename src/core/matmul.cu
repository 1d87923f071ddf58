#include "src/core/matmul.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/core/cublas_library.h"
#include "src/core/cuda.h"
#include "src/core/elements.cuh"
#include "src/core/graph.h"
#include "src/core/grid.h"
#include "src/core/launch.cuh"
#include "src/system/check.h"
#include "src/system/log_lines.h"
#include "src/system/plan_cache.h"

// Every call of cuBLASLt goes through this macro. It throws Error with the call, what was being done, and the cure.
#define OWT_CUBLAS(call) check_cublas((call), #call)

namespace owt {
namespace {

constexpr int64_t kMostWorkspaceBytes = 32 << 20;  // NVIDIA's recommendation for Hopper
constexpr int64_t kSmallWorkspaceBytes = 1 << 20;
constexpr int kCandidates = 16;  // algorithms that are measured
constexpr int kFillByte = 0x3c;  // 0.0115 in f32 and in bf16
constexpr int kSamples = 3, kRunsPerSample = 4;
// A candidate's share of the best time so far. Measurements differ from run to run by a few percent, and cuBLASLt lists
// the algorithms best first: what is not clearly faster does not change the choice.
constexpr double kClearlyFaster = 0.97;
constexpr double kNever = std::numeric_limits<double>::infinity();

const char* cure(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "the GPU's memory may be short: use a smaller batch; else look at the driver with nvidia-smi";
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "cuBLASLt has no code for it on this GPU; use another precision or --device cpu";
    default:
      return "the last checkpoint is kept; if it happens again, run with CUBLASLT_LOG_LEVEL=2 for cuBLASLt's own "
             "account";
  }
}

void check_cublas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string at = working_on();
  fail("cuBLASLt: ", cublasLtGetStatusString(status), " (", cublasLtGetStatusName(status), ") in ", call,
       at.empty() ? "" : ", at " + at, "; ", cure(status));
}

struct Destroy {
  void operator()(cublasLtContext* handle) const { cublasLtDestroy(handle); }
  void operator()(cublasLtMatmulDescOpaque_t* description) const { cublasLtMatmulDescDestroy(description); }
  void operator()(cublasLtMatrixLayoutOpaque_t* layout) const { cublasLtMatrixLayoutDestroy(layout); }
  void operator()(cublasLtMatmulPreferenceOpaque_t* preference) const { cublasLtMatmulPreferenceDestroy(preference); }
};
using Handle = std::unique_ptr<cublasLtContext, Destroy>;
using Description = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy>;
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy>;

// State shared by the products of one host thread on one GPU.
struct Context {
  Context() {
    cublasLtHandle_t created = nullptr;
    OWT_CUBLAS(cublasLtCreate(&created));
    handle.reset(created);
    int gpu = 0;
    cudaDeviceProp properties{};
    OWT_CUDA(cudaGetDevice(&gpu));
    OWT_CUDA(cudaGetDeviceProperties(&properties, gpu));
    model = concat(properties.name, " ", properties.major, ".", properties.minor, " ", properties.multiProcessorCount);
  }

  // The address of memory for an algorithm that needs so many bytes. It never changes: recorded steps contain it.
  void* workspace_for(int64_t bytes) {
    if (bytes == 0) return nullptr;
    const bool fits = bytes <= kSmallWorkspaceBytes;
    Tensor& workspace = fits ? small_workspace : workspace_of_most;
    if (!workspace.defined())
      workspace = Tensor({fits ? kSmallWorkspaceBytes : kMostWorkspaceBytes}, DType::kU8, Device::kCuda);
    return workspace.raw();
  }

  Handle handle;
  Tensor small_workspace, workspace_of_most;  // made when they are needed first
  std::string model;                          // all GPUs of one model run the same algorithms equally fast
};

std::shared_ptr<Context> context_of_this_thread() {
  thread_local std::map<int, std::shared_ptr<Context>> contexts;
  int gpu = 0;
  OWT_CUDA(cudaGetDevice(&gpu));
  std::shared_ptr<Context>& context = contexts[gpu];
  if (!context) context = std::make_shared<Context>();
  return context;
}

cudaDataType_t cuda_type(DType dtype) {
  OWT_CHECK(dtype == DType::kF32 || dtype == DType::kBF16, "products are of f32 or bf16, not of ", name_of(dtype));
  return dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
}

// The alignment in bytes of every row of a matrix whose first row has Matmul::kAlignment.
int64_t alignment(int64_t row_elements, DType dtype) {
  int64_t bytes = Matmul::kAlignment;
  while (row_elements * size_of(dtype) % bytes != 0) bytes /= 2;
  return bytes;
}

// cuBLASLt uses column-major order: a row-major matrix is its own transpose there.
Layout column_major(int64_t stored_rows, int64_t stored_columns, int64_t ld, DType dtype) {
  cublasLtMatrixLayout_t layout = nullptr;
  OWT_CUBLAS(cublasLtMatrixLayoutCreate(&layout, cuda_type(dtype), static_cast<uint64_t>(stored_columns),
                                        static_cast<uint64_t>(stored_rows), ld));
  return Layout(layout);
}

template <class Value>
void set(const Description& description, cublasLtMatmulDescAttributes_t name, const Value& value) {
  OWT_CUBLAS(cublasLtMatmulDescSetAttribute(description.get(), name, &value, sizeof value));
}

template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t name, const Value& value) {
  OWT_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference.get(), name, &value, sizeof value));
}

// cuBLASLt is reported to refuse its bias epilogue if a matrix has one row or column (PyTorch avoids this case too).
// Such products are small, and a kernel of this program adds the bias.
bool fuses_bias(const MatmulForm& form) { return form.bias && form.m > 1 && form.n > 1 && form.k > 1; }

template <class T>
__global__ void add_bias(int64_t m, int64_t n, int64_t ldc, const T* bias, T* c) {
  wait_for_previous_kernel();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= m * n) return;
  T& element = c[i / n * ldc + i % n];
  element = from_float<T>(to_float(element) + to_float(bias[i % n]));
}

// A type of this program: nvcc 13.0 needs it to put an algorithm into a container.
struct CublasAlgorithm {
  cublasLtMatmulAlgo_t chosen;
  int64_t workspace = 0;  // bytes

  // The algorithm's bytes, which cuBLASLt allows to be stored for the same version. Some bytes are uninitialised
  // memory: the same algorithm has different ones when it is proposed again.
  std::string text() const {
    std::string hex;
    for (const uint64_t word : chosen.data)
      for (int shift = 60; shift >= 0; shift -= 4) hex += "0123456789abcdef"[word >> shift & 15];
    return hex;
  }
  static std::optional<CublasAlgorithm> from(const std::string& text) {
    constexpr size_t kDigits = 16;  // hexadecimal digits of a 64-bit word
    CublasAlgorithm algorithm{};
    if (text.size() != std::size(algorithm.chosen.data) * kDigits) return {};
    for (size_t i = 0; i < std::size(algorithm.chosen.data); ++i) {
      const char* const begin = text.data() + i * kDigits;
      const auto [end, error] = std::from_chars(begin, begin + kDigits, algorithm.chosen.data[i], 16);
      if (error != std::errc() || end != begin + kDigits) return {};
    }
    return algorithm;
  }
};

DType factors(const MatmulForm& form) { return activation_type(form.precision); }

void check_form(const MatmulForm& form) {
  OWT_CHECK(form.m > 0 && form.n > 0 && form.k > 0, "an empty product ", form);
  OWT_CHECK(form.lda >= (form.a == Transpose::kNo ? form.k : form.m), "rows of A overlap in ", form);
  OWT_CHECK(form.ldb >= (form.b == Transpose::kNo ? form.n : form.k), "rows of B overlap in ", form);
  OWT_CHECK(form.ldc >= form.n, "rows of C overlap in ", form);
  OWT_CHECK(form.product == DType::kF32 || form.product == factors(form), "the product's type in ", form);
}

// The time of the fastest of a few runs, without the host's overhead.
template <class Queue>
double milliseconds(const Stream& stream, const Queue& queue_work) {
  queue_work();  // loads its code
  const Graph runs = Graph::record(stream, [&] {
    for (int i = 0; i < kRunsPerSample; ++i) queue_work();
  });
  double best = kNever;
  for (int sample = 0; sample < kSamples; ++sample) {
    const Event begin = stream.record();
    runs.launch(stream);
    const Event end = stream.record();
    end.wait();
    best = std::min(best, end.ms_since(begin));
  }
  return best;
}

}  // namespace

class Matmul::Tuned {
 public:
  explicit Tuned(const MatmulForm& form);
  void run(const void* a, const void* b, const void* bias, float beta, void* c, const Stream& stream) const;

 private:
  struct Alignments {
    int64_t a, b, c;
  };

  void describe();
  CublasAlgorithm choose() const;
  std::optional<CublasAlgorithm> remembered(const std::optional<std::string>& text) const;
  std::vector<CublasAlgorithm> candidates() const;
  CublasAlgorithm fastest(const std::vector<CublasAlgorithm>& algorithms) const;
  void queue(const CublasAlgorithm& algorithm, const void* a, const void* b, const void* bias, float beta, void* c,
             void* workspace, const Stream& stream) const;

  MatmulForm form_;
  Alignments alignments_;  // bytes
  std::shared_ptr<Context> context_;
  Description description_;
  Layout a_, b_, c_;
  CublasAlgorithm algorithm_;
  void* workspace_ = nullptr;
};

Matmul::Tuned::Tuned(const MatmulForm& form)
    : form_(form),
      alignments_{alignment(form.lda, factors(form)), alignment(form.ldb, factors(form)),
                  alignment(form.ldc, form.product)},
      context_(context_of_this_thread()) {
  check_form(form);
  describe();
  algorithm_ = choose();
  workspace_ = context_->workspace_for(algorithm_.workspace);
}

// C' = B'' * A'' in column-major order; cuBLASLt's first factor is therefore our B. Its bias has one number for each of
// its rows, which are our columns.
void Matmul::Tuned::describe() {
  const DType type = factors(form_);
  const bool a_transposed = form_.a == Transpose::kYes, b_transposed = form_.b == Transpose::kYes;
  a_ = a_transposed ? column_major(form_.k, form_.m, form_.lda, type) : column_major(form_.m, form_.k, form_.lda, type);
  b_ = b_transposed ? column_major(form_.n, form_.k, form_.ldb, type) : column_major(form_.k, form_.n, form_.ldb, type);
  c_ = column_major(form_.m, form_.n, form_.ldc, form_.product);
  const auto compute_type = form_.precision == Precision::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  cublasLtMatmulDesc_t created = nullptr;
  OWT_CUBLAS(cublasLtMatmulDescCreate(&created, compute_type, CUDA_R_32F));
  description_.reset(created);
  set(description_, CUBLASLT_MATMUL_DESC_TRANSA, b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(description_, CUBLASLT_MATMUL_DESC_TRANSB, a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (!fuses_bias(form_)) return;
  set(description_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  // Never read: the heuristics derive the alignment of later addresses from this one.
  set(description_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(kAlignment));
}

// One host thread at a time: ranks on one GPU must not disturb each other's measurements and must make the same choice.
CublasAlgorithm Matmul::Tuned::choose() const {
  static std::mutex mutex;
  PlanCache& cache = PlanCache::process();
  const std::string key = concat("cublasLt ", cublasLtGetVersion(), "\n", context_->model, "\n", form_);
  const std::lock_guard lock(mutex);
  if (const auto known = remembered(cache.find(key))) return *known;
  const CublasAlgorithm chosen = fastest(candidates());
  cache.store(key, chosen.text());
  return chosen;
}

// None if there is no text, or if cuBLASLt rejects it.
std::optional<CublasAlgorithm> Matmul::Tuned::remembered(const std::optional<std::string>& text) const {
  std::optional<CublasAlgorithm> algorithm = text ? CublasAlgorithm::from(*text) : std::nullopt;
  if (!algorithm) return {};
  cublasLtMatmulHeuristicResult_t result{};
  const auto status = cublasLtMatmulAlgoCheck(context_->handle.get(), description_.get(), b_.get(), a_.get(), c_.get(),
                                              c_.get(), &algorithm->chosen, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > static_cast<size_t>(kMostWorkspaceBytes)) return {};
  algorithm->workspace = static_cast<int64_t>(result.workspaceSize);
  return algorithm;
}

std::vector<CublasAlgorithm> Matmul::Tuned::candidates() const {
  cublasLtMatmulPreference_t created = nullptr;
  OWT_CUBLAS(cublasLtMatmulPreferenceCreate(&created));
  const Preference preference(created);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kMostWorkspaceBytes));
  // Partial sums over k are added in f32 by a separate step, always in the same order.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(alignments_.b));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(alignments_.a));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(alignments_.c));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(alignments_.c));
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
  int found = 0;
  OWT_CUBLAS(cublasLtMatmulAlgoGetHeuristic(context_->handle.get(), description_.get(), b_.get(), a_.get(), c_.get(),
                                            c_.get(), preference.get(), kCandidates, results.data(), &found));
  std::vector<CublasAlgorithm> algorithms;
  for (int i = 0; i < found; ++i)
    if (const auto& result = results[static_cast<size_t>(i)]; result.state == CUBLAS_STATUS_SUCCESS)
      algorithms.push_back({result.algo, static_cast<int64_t>(result.workspaceSize)});
  if (algorithms.empty())
    fail("cuBLASLt has no algorithm for the product ", form_, "; use another precision or --device cpu");
  return algorithms;
}

CublasAlgorithm Matmul::Tuned::fastest(const std::vector<CublasAlgorithm>& algorithms) const {
  if (algorithms.size() == 1) return algorithms.front();
  const Stream stream(Device::kCuda);
  const auto matrix = [&](int64_t rows, int64_t ld, DType dtype) {
    Tensor numbers({rows, ld}, dtype, Device::kCuda);  // not zeros: a GPU is faster on zeros than on data
    OWT_CUDA(cudaMemsetAsync(numbers.raw(), kFillByte, static_cast<size_t>(numbers.bytes()), cuda_stream(stream)));
    return numbers;
  };
  const DType type = factors(form_);
  const Tensor a = matrix(form_.a == Transpose::kYes ? form_.k : form_.m, form_.lda, type);
  const Tensor b = matrix(form_.b == Transpose::kYes ? form_.n : form_.k, form_.ldb, type);
  const Tensor bias = matrix(1, form_.n, form_.product);
  Tensor c = matrix(form_.m, form_.ldc, form_.product);
  int64_t most = 0;
  for (const CublasAlgorithm& algorithm : algorithms) most = std::max(most, algorithm.workspace);
  Tensor workspace({most}, DType::kU8, Device::kCuda);  // the thread's own workspace may be in use by queued work
  const auto milliseconds_or_never = [&](const CublasAlgorithm& algorithm) {
    try {
      return milliseconds(stream,
                          [&] { queue(algorithm, a.raw(), b.raw(), bias.raw(), 0, c.raw(), workspace.raw(), stream); });
    } catch (const Error& error) {
      log_to_file_only(concat("an algorithm of cuBLASLt's was left out for ", form_, ": ", error.what()));
      return kNever;
    }
  };
  size_t choice = 0;
  double best = milliseconds_or_never(algorithms[0]);
  for (size_t i = 1; i < algorithms.size(); ++i)
    if (const double ms = milliseconds_or_never(algorithms[i]); ms < kClearlyFaster * best) {
      choice = i;
      best = ms;
    }
  if (best == kNever) fail("cuBLASLt's algorithms for the product ", form_, " all fail; the log file has the reasons");
  return algorithms[choice];
}

void Matmul::Tuned::run(const void* a, const void* b, const void* bias, float beta, void* c,
                        const Stream& stream) const {
  const auto check = [&](const void* address, int64_t bytes, const char* name) {
    OWT_CHECK(reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(bytes) == 0, name, " at ", address, " in ",
              form_, " is no multiple of ", bytes, " bytes");
  };
  check(a, alignments_.a, "A");
  check(b, alignments_.b, "B");
  check(c, alignments_.c, "C");
  check(bias, kAlignment, "the bias");
  OWT_CHECK_EQ(bias != nullptr, form_.bias, "the bias of ", form_);
  queue(algorithm_, a, b, bias, beta, c, workspace_, stream);
  if (!form_.bias || fuses_bias(form_)) return;
  with_element(form_.product, [&](auto element) {
    using T = decltype(element);
    launch(add_bias<T>, blocks_for(form_.m * form_.n), kBlockThreads, stream, form_.m, form_.n, form_.ldc,
           static_cast<const T*>(bias), static_cast<T*>(c));
  });
}

void Matmul::Tuned::queue(const CublasAlgorithm& algorithm, const void* a, const void* b, const void* bias, float beta,
                          void* c, void* workspace, const Stream& stream) const {
  if (fuses_bias(form_)) set(description_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const float alpha = 1;
  OWT_CUBLAS(cublasLtMatmul(context_->handle.get(), description_.get(), &alpha, b, b_.get(), a, a_.get(), &beta, c,
                            c_.get(), c, c_.get(), &algorithm.chosen, workspace,
                            static_cast<size_t>(algorithm.workspace), cuda_stream(stream)));
}

Matmul::Matmul(const MatmulForm& form) : tuned_(std::make_unique<Tuned>(form)) {}
Matmul::Matmul(Matmul&&) noexcept = default;
Matmul::~Matmul() = default;

void Matmul::operator()(const void* a, const void* b, const void* bias, float beta, void* c,
                        const Stream& stream) const {
  tuned_->run(a, b, bias, beta, c, stream);
}

}  // namespace owt
