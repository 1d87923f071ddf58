// Facts about a training process for the record of a run: version, command, machine, workers, seed.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/train/job.h"

namespace owt {

// Name and value of each, for people.
std::vector<std::pair<std::string, std::string>> facts_of_start(const Job& job);

// The command line of this process in shell syntax; empty if the system does not provide it.
std::string command_line();
std::string shell_words(const std::vector<std::string>& words);

}  // namespace owt
