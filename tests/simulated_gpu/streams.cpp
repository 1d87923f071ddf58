#include "tests/simulated_gpu/streams.h"

#include <unordered_set>

#include "tests/simulated_gpu/runtime.h"

namespace simulated_gpu {
namespace {

// Never destroyed: the streams' threads may outlive main().
struct Registry {
  std::mutex mutex;
  std::unordered_set<cudaStream_t> streams;
  std::unordered_set<cudaEvent_t> events;
  unsigned long long next_stream = 1;
};

Registry& registry() {
  static Registry& registry = *new Registry;
  return registry;
}

cudaError_t create_stream(cudaStream_t* stream, unsigned flags, int priority) {
  if (!stream || (flags & ~static_cast<unsigned>(cudaStreamNonBlocking)) != 0) return cudaErrorInvalidValue;
  int device = 0;
  if (const cudaError_t status = cudaGetDevice(&device); status != cudaSuccess) return status;
  const std::lock_guard lock(api_mutex());
  auto created = std::make_unique<CUstream_st>();
  created->device = device;
  created->flags = flags;
  created->priority = priority;
  created->id = registry().next_stream++;
  registry().streams.insert(created.get());
  *stream = created.release();
  return cudaSuccess;
}

// Appends to the capture of the stream.
cudaError_t record_node(CUstream_st& stream, Node node) {
  if (!stream.capture->valid) return cudaErrorStreamCaptureInvalidated;
  node.lane = stream.lane;
  node.priority = stream.priority;
  stream.capture->recording.nodes.push_back(std::move(node));
  return cudaSuccess;
}

cudaError_t invalidate(Capture& capture, cudaError_t status) {
  capture.valid = false;
  return status;
}

void join_capture(CUstream_st& stream, const std::shared_ptr<Capture>& capture) {
  stream.capture = capture;
  stream.lane = capture->recording.lanes++;
  capture->members.push_back(&stream);
}

cudaError_t record_event(EventState& event, CUstream_st& stream) {
  if (event.device != stream.device) return cudaErrorInvalidResourceHandle;
  if (!stream.capture) {
    event.capture = nullptr;
    event.mark = std::make_shared<Mark>();
    stream.worker->push_set(event.mark);
    return cudaSuccess;
  }
  event.mark = nullptr;
  event.capture = stream.capture;
  event.signal = stream.capture->recording.signals++;
  return record_node(stream, {.kind = Node::Kind::kSignal, .signal = event.signal});
}

cudaError_t wait_event(CUstream_st& stream, EventState& event) {
  if (event.capture) {
    if (event.capture->members.empty()) return cudaErrorCapturedEvent;  // the capture is over
    if (!event.capture->valid) return cudaErrorStreamCaptureInvalidated;
    if (stream.capture && stream.capture != event.capture) {
      invalidate(*event.capture, cudaErrorStreamCaptureMerge);
      return invalidate(*stream.capture, cudaErrorStreamCaptureMerge);
    }
    if (!stream.capture) join_capture(stream, event.capture);
    return record_node(stream, {.kind = Node::Kind::kWait, .signal = event.signal});
  }
  if (stream.capture) return invalidate(*stream.capture, cudaErrorStreamCaptureIsolation);
  if (event.mark) stream.worker->push_wait(event.mark);
  return cudaSuccess;
}

}  // namespace

std::mutex& api_mutex() { return registry().mutex; }
bool is_live(cudaStream_t stream) { return registry().streams.count(stream) > 0; }
bool is_live(cudaEvent_t event) { return registry().events.count(event) > 0; }

cudaError_t refuse_in_capture() {
  const std::lock_guard lock(api_mutex());
  cudaError_t status = cudaSuccess;
  for (cudaStream_t stream : registry().streams) {
    if (!stream->capture) continue;
    Capture& capture = *stream->capture;
    if (capture.thread == std::this_thread::get_id() || capture.mode == cudaStreamCaptureModeGlobal)
      status = invalidate(capture, cudaErrorStreamCaptureUnsupported);
  }
  return status;
}

cudaError_t refuse_in_capture(cudaStream_t stream) {
  const std::lock_guard lock(api_mutex());
  if (!is_live(stream)) return cudaErrorInvalidResourceHandle;
  return stream->capture ? invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

void drain_device(int device, Which which) {
  std::vector<std::shared_ptr<Worker>> workers;
  {
    const std::lock_guard lock(api_mutex());
    for (cudaStream_t stream : registry().streams)
      if (stream->device == device && (which == Which::kAll || (stream->flags & cudaStreamNonBlocking) == 0))
        workers.push_back(stream->worker);
  }
  for (const auto& worker : workers) worker->drain();
}

cudaError_t enqueue(cudaStream_t stream, Origin origin, std::function<void()> work) {
  const std::lock_guard lock(api_mutex());
  if (!is_live(stream)) return cudaErrorInvalidResourceHandle;
  if (stream->capture)
    return record_node(*stream, {.kind = Node::Kind::kWork, .work = std::move(work), .origin = origin});
  stream->worker->push(std::move(work));
  return cudaSuccess;
}

}  // namespace simulated_gpu

using namespace simulated_gpu;

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return report(create_stream(stream, cudaStreamDefault, 0)); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return report(create_stream(stream, flags, 0));
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return report(create_stream(stream, flags, priority));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(api_mutex());
  if (!is_live(stream)) return report(cudaErrorInvalidResourceHandle);
  if (stream->capture) return report(invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported));
  registry().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t status = refuse_in_capture(stream); status != cudaSuccess) return report(status);
  std::shared_ptr<Worker> worker;
  {
    const std::lock_guard lock(api_mutex());
    worker = stream->worker;
  }
  worker->drain();
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t status = refuse_in_capture(stream); status != cudaSuccess) return report(status);
  const std::lock_guard lock(api_mutex());
  return report(stream->worker->idle() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  const std::lock_guard lock(api_mutex());
  if (!is_live(stream) || !is_live(event)) return report(cudaErrorInvalidResourceHandle);
  if (flags == cudaEventWaitExternal && stream->capture)
    return report(record_node(*stream, {.kind = Node::Kind::kWaitExternal, .event = event->state}));
  return report(wait_event(*stream, *event->state));
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  const std::lock_guard lock(api_mutex());
  if (!is_live(stream)) return report(cudaErrorInvalidResourceHandle);
  *device = stream->device;
  return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  const std::lock_guard lock(api_mutex());
  if (!is_live(stream)) return report(cudaErrorInvalidResourceHandle);
  *flags = stream->flags;
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  const std::lock_guard lock(api_mutex());
  if (!is_live(stream)) return report(cudaErrorInvalidResourceHandle);
  *priority = stream->priority;
  return cudaSuccess;
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  const std::lock_guard lock(api_mutex());
  if (!is_live(stream)) return report(cudaErrorInvalidResourceHandle);
  *id = stream->id;
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return report(enqueue(stream, {"cudaLaunchHostFunc"}, [function, data] { function(data); }));
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (!event) return report(cudaErrorInvalidValue);
  int device = 0;
  if (const cudaError_t status = cudaGetDevice(&device); status != cudaSuccess) return report(status);
  const std::lock_guard lock(api_mutex());
  auto created = std::make_unique<CUevent_st>();
  created->state->device = device;
  created->state->flags = flags;
  registry().events.insert(created.get());
  *event = created.release();
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(api_mutex());
  if (!is_live(event)) return report(cudaErrorInvalidResourceHandle);
  registry().events.erase(event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  const std::lock_guard lock(api_mutex());
  if (!is_live(stream) || !is_live(event)) return report(cudaErrorInvalidResourceHandle);
  if (flags == cudaEventRecordExternal && stream->capture)
    return report(record_node(*stream, {.kind = Node::Kind::kRecordExternal, .event = event->state}));
  return report(record_event(*event->state, *stream));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t status = refuse_in_capture(); status != cudaSuccess) return report(status);
  const std::lock_guard lock(api_mutex());
  if (!is_live(event)) return report(cudaErrorInvalidResourceHandle);
  if (event->state->capture) return report(invalidate(*event->state->capture, cudaErrorCapturedEvent));
  return report(!event->state->mark || event->state->mark->done() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  std::shared_ptr<Mark> mark;
  {
    const std::lock_guard lock(api_mutex());
    if (!is_live(event)) return report(cudaErrorInvalidResourceHandle);
    if (event->state->capture) return report(invalidate(*event->state->capture, cudaErrorCapturedEvent));
    mark = event->state->mark;
  }
  if (mark) mark->wait();
  close_unused_memory();
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  const std::lock_guard lock(api_mutex());
  if (!is_live(start) || !is_live(end)) return report(cudaErrorInvalidResourceHandle);
  const EventState &from = *start->state, &to = *end->state;
  if (from.capture || to.capture) return report(cudaErrorCapturedEvent);
  const bool timed = ((from.flags | to.flags) & cudaEventDisableTiming) == 0;
  if (!timed || !from.mark || !to.mark || from.device != to.device) return report(cudaErrorInvalidResourceHandle);
  if (!from.mark->done() || !to.mark->done()) return report(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(to.mark->time() - from.mark->time()).count();
  return cudaSuccess;
}
