#include "src/core/cuda.h"

#include <algorithm>

#include "src/core/gpus.h"
#include "src/core/graph.h"
#include "src/core/launch.cuh"
#include "src/core/memory.h"
#include "src/core/poison.h"
#include "src/system/check.h"

namespace owt {
namespace {

const char* cure(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return "use a smaller batch, precision bf16, or more workers";
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
      return "look at the driver with nvidia-smi, or use --device cpu";
    case cudaErrorNoKernelImageForDevice:
      return "the program was built for other GPUs: configure with -DCMAKE_CUDA_ARCHITECTURES=native";
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
      return "the GPU itself failed; look at nvidia-smi and the kernel log";
    default:
      return "the last checkpoint is kept; if it happens again, run with CUDA_LAUNCH_BLOCKING=1 for the exact place";
  }
}

constexpr int kFirstMajorWithBf16 = 8;   // Ampere
constexpr int kFirstCodeThatWaits = 90;  // compute capability 9.0

__global__ void probe() { wait_for_previous_kernel(); }

std::string version_name(int version) { return concat(version / 1000, ".", version % 1000 / 10); }

class CudaPending : public Event::Pending {
 public:
  explicit CudaPending(std::shared_ptr<CUevent_st> event) : event_(std::move(event)) {}

  void wait() override { OWT_CUDA(cudaEventSynchronize(event_.get())); }
  bool done() const override {
    const cudaError_t status = cudaEventQuery(event_.get());
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // otherwise the next launch would report it
      return false;
    }
    OWT_CUDA(status);
    return true;
  }
  bool hold(void* queue) override {
    OWT_CUDA(cudaStreamWaitEvent(static_cast<cudaStream_t>(queue), event_.get(), 0));
    return true;
  }
  double ms_since(const Event::Pending& earlier) const override {
    const auto* begin = dynamic_cast<const CudaPending*>(&earlier);
    if (!begin) return 0;
    float ms = 0;
    OWT_CUDA(cudaEventElapsedTime(&ms, begin->event_.get(), event_.get()));
    return static_cast<double>(ms);
  }

 private:
  std::shared_ptr<CUevent_st> event_;
};

class CudaQueue : public Stream::Queue {
 public:
  // CUDA's own streams have the lowest priority, so the normal priority here has to be above it; a smaller number is
  // more urgent.
  explicit CudaQueue(Priority priority) {
    int lowest = 0, highest = 0;
    OWT_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    const int wanted = priority == Priority::kLow ? lowest : std::max(lowest - 1, highest);
    OWT_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, wanted));
  }
  ~CudaQueue() override { cudaStreamDestroy(stream_); }
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  Event record() override {
    auto event = make_cuda_event();
    OWT_CUDA(cudaEventRecord(event.get(), stream_));
    return Event(std::make_shared<CudaPending>(std::move(event)));
  }
  void wait(const Event& event) override {
    if (!event.hold(stream_)) event.wait();
  }
  void synchronize() override { OWT_CUDA(cudaStreamSynchronize(stream_)); }
  void* native() override { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaGraph : public Graph::Executable {
 public:
  // Every node keeps the priority of the stream that it was recorded on.
  explicit CudaGraph(cudaGraph_t graph) {
    OWT_CUDA(cudaGraphInstantiate(&executable_, graph, cudaGraphInstantiateFlagUseNodePriority));
  }
  ~CudaGraph() override { cudaGraphExecDestroy(executable_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch(const Stream& stream) override { OWT_CUDA(cudaGraphLaunch(executable_, cuda_stream(stream))); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

void detail::check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // the caller may catch the Error: the next launch must not report this error again
  const std::string at = working_on();
  fail("CUDA: ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ") in ", call,
       at.empty() ? "" : ", at " + at, "; ", cure(status));
}

bool kernels_wait() {
  thread_local int asked = -1;
  thread_local bool wait = false;
  int gpu = 0;
  OWT_CUDA(cudaGetDevice(&gpu));
  if (gpu != asked) {
    cudaFuncAttributes code{};
    OWT_CUDA(cudaFuncGetAttributes(&code, reinterpret_cast<const void*>(&probe)));
    wait = code.ptxVersion >= kFirstCodeThatWaits;
    asked = gpu;
  }
  return wait;
}

std::shared_ptr<CUevent_st> make_cuda_event() {
  cudaEvent_t event = nullptr;
  OWT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDefault));
  return {event, [](cudaEvent_t e) { cudaEventDestroy(e); }};
}

Gpus find_gpus(Cuda) {
  Gpus gpus;
  int runtime = 0, driver = 0, count = 0;
  if (cudaRuntimeGetVersion(&runtime) == cudaSuccess) gpus.runtime = version_name(runtime);
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) gpus.driver = version_name(driver);
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();  // otherwise the next launch would report it
  if (status != cudaSuccess || count == 0) {
    gpus.why_none = gpus.driver.empty()     ? "there is no NVIDIA driver on this machine"
                    : status == cudaSuccess ? "the CUDA driver sees no GPU"
                    : status == cudaErrorInsufficientDriver
                        ? concat("the NVIDIA driver is for CUDA ", gpus.driver, ", the program for CUDA ", gpus.runtime,
                                 " (update the driver)")
                        : concat("no GPU can be used: ", cudaGetErrorString(status));
    return gpus;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    Gpu gpu;
    gpu.index = i;
    gpu.name = properties.name;
    gpu.capability = properties.major * 10 + properties.minor;
    gpu.multiprocessors = properties.multiProcessorCount;
    gpu.memory = static_cast<int64_t>(properties.totalGlobalMem);
    char bus[32] = {};
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, i) == cudaSuccess) gpu.pci_bus = bus;
    gpus.list.push_back(gpu);
  }
  return gpus;
}

void use_gpu(Cuda, int index) { OWT_CUDA(cudaSetDevice(index)); }

void check_gpu(Cuda, Precision precision) {
  int index = 0;
  cudaDeviceProp gpu{};
  OWT_CUDA(cudaGetDevice(&index));
  OWT_CUDA(cudaGetDeviceProperties(&gpu, index));
  const std::string name = concat(gpu.name, " (compute capability ", gpu.major, ".", gpu.minor, ")");
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&probe));
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction ||
      status == cudaErrorUnsupportedPtxVersion) {
    cudaGetLastError();
    fail("this program has no code for the GPU ", name, "; build it with -DCMAKE_CUDA_ARCHITECTURES=", gpu.major,
         gpu.minor, ", or use --device cpu");
  }
  OWT_CUDA(status);
  if (precision == Precision::kBf16 && gpu.major < kFirstMajorWithBf16)
    fail("precision bf16 needs a GPU of compute capability ", kFirstMajorWithBf16, ".0 or newer; for ", name,
         " use --precision fp32");
}

int64_t free_memory_of_gpu(Cuda, int index) {
  int before = 0;
  size_t free = 0, total = 0;
  OWT_CUDA(cudaGetDevice(&before));
  OWT_CUDA(cudaSetDevice(index));
  OWT_CUDA(cudaMemGetInfo(&free, &total));
  OWT_CUDA(cudaSetDevice(before));
  return static_cast<int64_t>(free);
}

std::shared_ptr<std::byte> allocate(Cuda, int64_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, static_cast<size_t>(bytes > 0 ? bytes : 1));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    const std::string at = working_on();
    throw OutOfMemory(concat("out of memory on the GPU: ", bytes >> 20, " MiB asked for", at.empty() ? "" : " at " + at,
                             ", ", free >> 20, " of ", total >> 20, " MiB are free; ", cure(status)),
                      bytes, static_cast<int64_t>(free), static_cast<int64_t>(total));
  }
  OWT_CUDA(status);
  return {static_cast<std::byte*>(memory), [](std::byte* p) { cudaFree(p); }};
}

std::shared_ptr<std::byte> allocate_shared_with(Cuda, int64_t bytes) {
  void* memory = nullptr;
  OWT_CUDA(cudaMallocHost(&memory, static_cast<size_t>(bytes > 0 ? bytes : 1)));
  return {static_cast<std::byte*>(memory), [](std::byte* p) { cudaFreeHost(p); }};
}

void copy_bytes(Cuda, const void* from, void* to, int64_t bytes, const Stream& stream) {
  if (bytes > 0)
    OWT_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, cuda_stream(stream)));
}

void zero_bytes(Cuda, void* to, int64_t bytes, const Stream& stream) {
  if (bytes > 0) OWT_CUDA(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), cuda_stream(stream)));
}

void set_all_bits(Cuda, void* to, int64_t bytes, const Stream& stream) {
  if (bytes > 0) OWT_CUDA(cudaMemsetAsync(to, 0xff, static_cast<size_t>(bytes), cuda_stream(stream)));
}

std::shared_ptr<Stream::Queue> make_queue(Cuda, Priority priority) { return std::make_shared<CudaQueue>(priority); }

std::shared_ptr<Graph::Executable> record_graph(Cuda, const Stream& stream, const std::function<void()>& queue_work) {
  const cudaStream_t queue = cuda_stream(stream);
  cudaGraph_t graph = nullptr;
  OWT_CUDA(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal));
  try {
    queue_work();
  } catch (...) {
    cudaStreamEndCapture(queue, &graph);  // the stream is usable again; what was recorded is void
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  OWT_CUDA(cudaStreamEndCapture(queue, &graph));
  const std::shared_ptr<CUgraph_st> owner(graph, [](cudaGraph_t g) { cudaGraphDestroy(g); });
  return std::make_shared<CudaGraph>(graph);
}

}  // namespace owt
