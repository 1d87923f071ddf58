// Device work that is recorded once and replayed as one (a CUDA graph).
#pragma once

#include <functional>
#include <memory>

#include "src/core/stream.h"

namespace owt {

class Graph {
 public:
  class Executable {
   public:
    virtual ~Executable() = default;
    virtual void launch(const Stream& stream) = 0;
  };

  Graph() = default;

  // Records the work that `queue_work` queues, on `stream` or on streams that wait for it and that it waits for again.
  // queue_work may only queue work; none of it runs yet. The memory it uses must live as long as the graph. Throws what
  // queue_work throws.
  static Graph record(const Stream& stream, const std::function<void()>& queue_work);

  bool recorded() const { return recorded_ != nullptr; }
  void launch(const Stream& stream) const { recorded_->launch(stream); }

 private:
  std::shared_ptr<Executable> recorded_;
};

std::shared_ptr<Graph::Executable> record_graph(Cpu, const Stream& stream, const std::function<void()>& queue_work);
std::shared_ptr<Graph::Executable> record_graph(Cuda, const Stream& stream, const std::function<void()>& queue_work);

}  // namespace owt
