#include "src/core/stream.h"

#include "src/core/dispatch.h"
#include "src/core/graph.h"

namespace owt {

std::shared_ptr<Stream::Queue> make_queue(Cpu, Priority) { return nullptr; }

Stream::Stream(Device device, Priority priority) : device_(device) {
  queue_ = dispatch(device, [&](auto tag) { return make_queue(tag, priority); });
}

std::shared_ptr<Graph::Executable> record_graph(Cpu, const Stream&, const std::function<void()>&) {
  fail("work on the CPU runs at once and cannot be recorded");
}

Graph Graph::record(const Stream& stream, const std::function<void()>& queue_work) {
  Graph graph;
  graph.recorded_ = dispatch(stream.device(), [&](auto tag) { return record_graph(tag, stream, queue_work); });
  return graph;
}

}  // namespace owt
