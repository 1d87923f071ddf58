// The orders of the strategies, which the table in strategy.cpp names; order.cpp defines them.
#pragma once

namespace owt {

class StepOrder;
void data_parallel(StepOrder& step);
void updates_in_shares(StepOrder& step);
void parameter_server(StepOrder& step);
void one_weird_trick(StepOrder& step);
void model_parallel(StepOrder& step);
void pipeline(StepOrder& step);

}  // namespace owt
