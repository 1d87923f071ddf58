// SIGINT, SIGTERM and SIGUSR1 ask a run to stop at the next step; a second SIGINT ends the process at once. SIGUSR1 is
// for mpirun, which passes it on to all ranks; on a SIGTERM of its own it kills them after a second.
#pragma once

namespace owt {

void catch_stop_signals();
bool stop_requested();
void request_stop(bool stop);  // as the signal would; false forgets it

}  // namespace owt
