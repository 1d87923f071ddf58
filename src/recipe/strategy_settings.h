// The settings of a recipe that only some strategies have: the tables [pipeline] and [ps].
#pragma once

#include "src/recipe/settings.h"

namespace owt {

// The rest of `parallel` must have been read.
void read_pipeline(Config config, const OptimizerSettings& optimizer, ParallelSettings& parallel);
void read_server(Config config, const OptimizerSettings& optimizer, ParallelSettings& parallel);
// Throws Error for filters that need another optimizer.
void check_filters(const FilterSettings& filters, const OptimizerSettings& optimizer);

// For `owt check`: one update per step, with the whole gradient of all rows. Throws Error if the strategy has none.
void make_synchronous(ParallelSettings& parallel);
// For a run whose workers may leave and join. Throws Error for settings that do not support it, or that depend on the
// number of workers.
// Throws Error if run.canonical is given with settings that change the step with the number of workers. run: [run]
void check_canonical(const Config& run, const Settings& settings);
void check_workers_may_change(const Settings& settings);
// The number of parts of a rank's rows that the recipe asks for: micro-batches of gradient accumulation or a pipeline.
int64_t parts_of_rows(const Settings& settings);

}  // namespace owt
