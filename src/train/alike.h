// Checks that the processes of a launch run the same steps on the same data (comm/agreement.h).
#pragma once

#include <string>
#include <vector>

#include "src/comm/agreement.h"
#include "src/train/job.h"

namespace owt {

Fact program_fact();
// The result of `--device` on this host (device_from()), or why it fails.
Fact device_fact(const std::string& device);

// The start of every command whose ranks may be processes. Sets the recipe's timeouts. Compares program, command,
// recipe, device and precision, then `more` facts of the command line. Checks that the number of ranks is the recipe's.
// Collective. Throws Error on all ranks with the first difference.
void start_together(const std::string& command, const Settings& settings, const std::vector<Fact>& more = {});
// option_fact(): the text of a command-line option. option_is_given(): only whether it is given.
Fact option_fact(const std::string& name, const std::string& value);
Fact option_is_given(const std::string& name, bool given);

// Compares the data that open_data() found in `folder`: sizes, checksums and classes of the splits, statistics.
// Collective; throws Error on all ranks.
void check_same_data(const Job& job, const std::string& folder);

}  // namespace owt
