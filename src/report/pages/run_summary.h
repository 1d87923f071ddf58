// What a reader wants to know of a run first, for summaries and lists.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/report/pages/run_record.h"

namespace owt {

std::string state_of(const RunRecord& run);  // "running", "finished", "diverged", ...
// The value in the latest start record; if there is none, the recipe's value; "–" if both are missing. setting may be
// empty.
std::string fact_of(const RunRecord& run, const std::string& name, const std::string& setting);
std::string workers_of(const RunRecord& run);           // the newest number of workers
std::string recipe_of(const RunRecord& run);            // the word after "owt train"; empty: unknown
const EvaluationLine* best_of(const RunRecord& run);    // the best top-1; null: no evaluation
int64_t total_steps_of(const RunRecord& run);           // updates in the whole run; 0: unknown
double seconds_left_of(const RunRecord& run);           // from the latest steps; NaN: unknown, or it is not running
double last_finite(const std::vector<double>& values);  // NaN: there is none
std::string percent_text(double fraction);              // "86.70 %"; "–" if it is not finite
std::string steps_text(const RunRecord& run);           // "120", "120 of 390" before the end; "–" before the first
std::string time_text(int64_t seconds);                 // "2026-11-27 14:30:02" of seconds since 1970, local time
// Name of the evaluated split if all runs have the same one; else "evaluation".
std::string split_of(std::span<const RunRecord> runs);
// The time of the run's last line as HTML. A live page shows its age (live.js).
std::string last_line_of(const RunRecord& run);

}  // namespace owt
