// Streams, events and captures of the simulated GPU: the objects of CUDA's handles.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/simulated_gpu/runtime.h"
#include "tests/simulated_gpu/worker.h"

namespace simulated_gpu {

struct Capture;

struct EventState {
  int device = 0;
  unsigned flags = 0;
  std::shared_ptr<Mark> mark;        // last record; null: never recorded, or recorded in a capture
  std::shared_ptr<Capture> capture;  // capture of the last record, if any, as
  size_t signal = 0;                 // this number
};

// One step of a captured stream. A lane has the steps of one stream.
struct Node {
  enum class Kind { kWork, kSignal, kWait, kRecordExternal, kWaitExternal };
  Kind kind = Kind::kWork;
  size_t lane = 0;
  int priority = 0;                     // priority of the stream
  std::function<void()> work{};         // kWork
  Origin origin{};                      // kWork
  size_t signal = 0;                    // kSignal, kWait: from one lane to another
  std::shared_ptr<EventState> event{};  // external events: seen outside the graph
};

struct Recording {
  std::vector<Node> nodes;  // in the order of the calls
  size_t lanes = 1, signals = 0;
};

struct Capture {
  Recording recording;
  std::vector<cudaStream_t> members;  // by lane; the first began the capture
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  unsigned long long id = 0;
  bool valid = true;  // false after a call that capturing forbids
};

// Guards the objects of all handles. Never held while waiting.
std::mutex& api_mutex();

bool is_live(cudaStream_t stream);
bool is_live(cudaEvent_t event);

// Remembers the error for cudaGetLastError.
cudaError_t report(cudaError_t status);

// Returns an error and invalidates the capture if this thread must not do what a capture forbids.
cudaError_t refuse_in_capture();
cudaError_t refuse_in_capture(cudaStream_t stream);

// Blocks until all work that is queued on the device is done, or the work that the default stream waits for.
enum class Which { kAll, kBlocking };
void drain_device(int device, Which which);

}  // namespace simulated_gpu

struct CUstream_st {
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  unsigned long long id = 0;
  std::shared_ptr<simulated_gpu::Worker> worker = std::make_shared<simulated_gpu::Worker>();
  std::shared_ptr<simulated_gpu::Capture> capture;  // null: work runs
  size_t lane = 0;                                  // in the capture
};

struct CUevent_st {
  std::shared_ptr<simulated_gpu::EventState> state = std::make_shared<simulated_gpu::EventState>();
};

struct CUgraph_st {
  std::shared_ptr<const simulated_gpu::Recording> recording;
};

struct CUgraphExec_st {
  unsigned long long flags = 0;
  std::shared_ptr<const simulated_gpu::Recording> recording;
  std::vector<std::shared_ptr<simulated_gpu::Worker>> workers;  // for the lanes from 1; lane 0 is the stream's own
};
