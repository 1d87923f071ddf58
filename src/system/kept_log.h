// Log lines written before there is a log file (log.h).
#pragma once

namespace owt {

// Keeps lines from then on for the file that log_to_file() opens; that file begins with them. A second call, and
// log_to_file(""), discard the lines kept so far.
void keep_log_for_file();

}  // namespace owt
