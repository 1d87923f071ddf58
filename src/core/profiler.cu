#include <nvtx3/nvToolsExt.h>

#include "src/core/cuda.h"
#include "src/core/profiler.h"

namespace owt {
namespace {

class CudaMarks : public Marks {
 public:
  explicit CudaMarks(const Stream& stream) : stream_(stream) {}

  void set(size_t mark) override {
    while (events_.size() <= mark) events_.push_back(make_cuda_event());
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    OWT_CUDA(cudaStreamIsCapturing(cuda_stream(stream_), &status));
    // External: the event marks the time of every replay and is not a dependency inside the graph.
    const unsigned flags = status == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal;
    OWT_CUDA(cudaEventRecordWithFlags(events_[mark].get(), cuda_stream(stream_), flags));
  }
  void wait(size_t mark) override { OWT_CUDA(cudaEventSynchronize(events_[mark].get())); }
  double ms(size_t from, size_t to) const override {
    float ms = 0;
    OWT_CUDA(cudaEventElapsedTime(&ms, events_[from].get(), events_[to].get()));
    return static_cast<double>(ms);
  }
  void begin_range(const std::string& name) override { nvtxRangePushA(name.c_str()); }
  void end_range() override { nvtxRangePop(); }

 private:
  Stream stream_;
  std::vector<std::shared_ptr<CUevent_st>> events_;
};

}  // namespace

std::unique_ptr<Marks> make_marks(Cuda, const Stream& stream) { return std::make_unique<CudaMarks>(stream); }

}  // namespace owt
