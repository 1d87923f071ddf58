// What the processes of a launch must have alike so that they run the same steps on the same data (comm/agreement.h).
#pragma once

#include <string>
#include <vector>

#include "src/comm/agreement.h"
#include "src/train/job.h"

namespace owt {

Fact program_fact();
// What `--device` gives on this host (device_from()), or why it gives nothing.
Fact device_fact(const std::string& device);

// The start of every command whose ranks may be processes. Sets what the recipe says of timeouts, compares program,
// command, recipe, device and precision, then `more` of the command line, and checks that as many ranks are there as
// the recipe wants. Collective. Throws Error on all ranks, naming the first that differs.
void start_together(const std::string& command, const Settings& settings, const std::vector<Fact>& more = {});
// What an option of the command line says: its text, or only whether it is given.
Fact option_fact(const std::string& name, const std::string& value);
Fact option_is_given(const std::string& name, bool given);

// Compares what open_data() has found in `folder`: sizes, checksums and classes of the splits, statistics. As above.
void check_same_data(const Job& job, const std::string& folder);

}  // namespace owt
