// SIGINT and SIGTERM ask a run to stop at the next step; a second one ends the process at once.
#pragma once

namespace owt {

void catch_stop_signals();
bool stop_requested();
void request_stop(bool stop);  // as the signal would; false forgets it

}  // namespace owt
