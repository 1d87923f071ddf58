// First values of weights that depend on the images: init type "whitening".
#pragma once

#include "src/parallel/rank_model.h"
#include "src/train/job.h"

namespace owt {

// Where the first layer's weight begins so: its first outputs are the filters of data/patch_whitening.h, the next ones
// their negatives (a relu behind them keeps what either lets through); further ones stay as they were drawn. Of the
// training images the first `images` are read. Throws what whitening_filters() does.
void whiten(const Job& job, RankModel& model);

}  // namespace owt
