// Stream capture and graphs.
//
// A graph keeps the steps of each captured stream in order, and the waits between streams. A launch gives the steps of
// the first stream to the stream that it is launched on, and the steps of each other stream to a separate thread. So
// operations that the capture left unordered run at the same time.
#include <algorithm>

#include "tests/simulated_gpu/runtime.h"
#include "tests/simulated_gpu/streams.h"
#include "tests/simulated_gpu/symbols.h"

namespace simulated_gpu {
namespace {

// Whether the end of the first lane comes after all work of the other lanes.
bool all_joined(const Recording& recording) {
  const auto& nodes = recording.nodes;
  std::vector<size_t> covered(recording.lanes, 0);  // by lane: number of steps that complete before this one
  covered[0] = nodes.size();
  std::vector<size_t> signalled_at(recording.signals, 0);
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].kind == Node::Kind::kSignal) signalled_at[nodes[i].signal] = i;
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& node = nodes[i];
    if (node.kind != Node::Kind::kWait || i >= covered[node.lane]) continue;
    const size_t from = signalled_at[node.signal];
    covered[nodes[from].lane] = std::max(covered[nodes[from].lane], from + 1);
  }
  return std::all_of(nodes.begin(), nodes.end(), [&](const Node& node) {
    return node.kind != Node::Kind::kWork || static_cast<size_t>(&node - nodes.data()) < covered[node.lane];
  });
}

void leave_capture(Capture& capture) {
  for (cudaStream_t member : capture.members) member->capture = nullptr;
  capture.members.clear();
}

cudaError_t end_capture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!is_live(stream)) return cudaErrorInvalidResourceHandle;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return cudaErrorIllegalState;
  if (capture->members.front() != stream) {
    capture->valid = false;
    return cudaErrorStreamCaptureUnmatched;
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  leave_capture(*capture);
  if (!capture->valid) return cudaErrorStreamCaptureInvalidated;
  if (!all_joined(capture->recording)) return cudaErrorStreamCaptureUnjoined;
  *graph = new CUgraph_st{std::make_shared<const Recording>(std::move(capture->recording))};
  return cudaSuccess;
}

void replay(const CUgraphExec_st& graph, const CUstream_st& stream) {
  const std::shared_ptr<const Recording> recording = graph.recording;
  const auto start = std::make_shared<Mark>();
  stream.worker->push_set(start);
  for (const auto& worker : graph.workers) worker->push_wait(start);
  std::vector<std::shared_ptr<Mark>> signals(recording->signals);
  for (auto& signal : signals) signal = std::make_shared<Mark>();
  for (const Node& node : recording->nodes) {
    Worker& worker = node.lane == 0 ? *stream.worker : *graph.workers[node.lane - 1];
    switch (node.kind) {
      case Node::Kind::kWork:
        worker.push([recording, &node] { node.work(); });
        break;
      case Node::Kind::kSignal:
        worker.push_set(signals[node.signal]);
        break;
      case Node::Kind::kWait:
        worker.push_wait(signals[node.signal]);
        break;
      case Node::Kind::kRecordExternal:
        node.event->capture = nullptr;
        node.event->mark = std::make_shared<Mark>();
        worker.push_set(node.event->mark);
        break;
      case Node::Kind::kWaitExternal:
        if (node.event->mark) worker.push_wait(node.event->mark);
        break;
    }
  }
}

// Guarded by api_mutex(); never destroyed, as streams are not.
std::vector<cudaGraphExec_t>& executables() {
  static auto& executables = *new std::vector<cudaGraphExec_t>;
  return executables;
}

std::vector<GraphNode> working_nodes(const CUgraphExec_st& graph) {
  const bool keeps_priority = (graph.flags & cudaGraphInstantiateFlagUseNodePriority) != 0;
  std::vector<GraphNode> nodes;
  for (const Node& node : graph.recording->nodes)
    if (node.kind == Node::Kind::kWork)
      nodes.push_back({node.origin.kernel ? name_of_function(node.origin.kernel) : node.origin.call, node.lane,
                       keeps_priority ? node.priority : 0});
  return nodes;
}

}  // namespace

std::vector<std::vector<GraphNode>> live_graphs() {
  const std::lock_guard lock(api_mutex());
  std::vector<std::vector<GraphNode>> graphs;
  for (const cudaGraphExec_t executable : executables()) graphs.push_back(working_nodes(*executable));
  return graphs;
}

}  // namespace simulated_gpu

using namespace simulated_gpu;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  static unsigned long long captures = 0;
  const std::lock_guard lock(api_mutex());
  if (!is_live(stream)) return report(cudaErrorStreamCaptureUnsupported);
  if (stream->capture) return report(cudaErrorIllegalState);
  auto capture = std::make_shared<Capture>();
  capture->members = {stream};
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->id = ++captures;
  stream->capture = std::move(capture);
  stream->lane = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (!graph) return report(cudaErrorInvalidValue);
  const std::lock_guard lock(api_mutex());
  return report(end_capture(stream, graph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

// The graph under construction and its dependencies are not simulated; these results must not be requested.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* dependency_count) {
  const std::lock_guard lock(api_mutex());
  if (!is_live(stream)) return report(cudaErrorInvalidResourceHandle);
  if (!status || graph || dependencies || edges || dependency_count) return report(cudaErrorInvalidValue);
  const Capture* capture = stream->capture.get();
  *status = !capture         ? cudaStreamCaptureStatusNone
            : capture->valid ? cudaStreamCaptureStatusActive
                             : cudaStreamCaptureStatusInvalidated;
  if (id && capture) *id = capture->id;
  return cudaSuccess;
}

// A node for each operation and each external event; the handles serve for counting only.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (!graph || !count) return report(cudaErrorInvalidValue);
  size_t found = 0;
  for (const Node& node : graph->recording->nodes) {
    if (node.kind == Node::Kind::kSignal || node.kind == Node::Kind::kWait) continue;
    if (nodes && found < *count) nodes[found] = reinterpret_cast<cudaGraphNode_t>(const_cast<Node*>(&node));
    ++found;
  }
  *count = nodes ? std::min(found, *count) : found;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  if (!executable || !graph) return report(cudaErrorInvalidValue);
  auto created = std::make_unique<CUgraphExec_st>();
  created->recording = graph->recording;
  created->flags = flags;
  for (size_t lane = 1; lane < graph->recording->lanes; ++lane) created->workers.push_back(std::make_shared<Worker>());
  const std::lock_guard lock(api_mutex());
  *executable = executables().emplace_back(created.release());
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  const std::lock_guard lock(api_mutex());
  return report(executable && is_live(stream) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const std::lock_guard lock(api_mutex());
  if (!executable) return report(cudaErrorInvalidValue);
  if (!is_live(stream)) return report(cudaErrorInvalidResourceHandle);
  if (stream->capture) {
    stream->capture->valid = false;
    return report(cudaErrorStreamCaptureUnsupported);
  }
  replay(*executable, *stream);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  {
    const std::lock_guard lock(api_mutex());
    std::erase(executables(), executable);
  }
  delete executable;
  return cudaSuccess;
}
