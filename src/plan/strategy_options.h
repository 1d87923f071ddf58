// The settings that only some strategies have. All code but these strategies passes them on as a whole.
#pragma once

#include "src/plan/pipeline.h"
#include "src/plan/server_request.h"

namespace owt {

struct StrategyOptions {
  PipelineRequest pipeline{};
  ServerRequest server{};
};

}  // namespace owt
