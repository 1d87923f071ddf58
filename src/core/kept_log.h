// Log lines from before there is a log file (log.h).
#pragma once

namespace owt {

// From now on lines are kept for the file that log_to_file() opens, which begins with them. Called again, and by
// log_to_file(""), what was kept is forgotten.
void keep_log_for_file();

}  // namespace owt
