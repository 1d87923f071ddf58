// Initial weights that depend on the images: init type "whitening".
#pragma once

#include "src/plan/rank_model.h"
#include "src/train/job.h"

namespace owt {

// If the first layer's weight has this init: its first outputs are the filters of data/patch_whitening.h, and the next
// ones their negatives, so that a following relu keeps both signs. Further outputs keep their drawn values. Reads the
// first `images` training images. Throws what whitening_filters() throws.
void whiten(const Job& job, RankModel& model);

}  // namespace owt
