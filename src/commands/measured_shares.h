// Implements parallel.shares = "measured".
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/train/session.h"

namespace owt {

// Shares in proportion to the speed of workers, from their positive times for the same rows. The fastest has 1; shares
// are rounded to thousandths. If no worker is kSameSpeed times as fast as another, all have 1.
constexpr double kSameSpeed = 1.05;
std::vector<double> shares_from(std::span<const double> seconds);

// "worker 0 1.000, worker 1 0.524"
std::string shares_text(std::span<const double> shares);

// If the recipe's shares are "measured": uses `kept`, from a checkpoint of as many workers; else measures forward and
// backward of a few steps on all workers at the same time. The recipe keeps the word, since other workers have other
// speeds. Returns a line for the log; may be empty. Collective over the processes of a launch, before the ranks run.
std::string settle_shares(Settings& settings, const Session& session, const std::vector<double>& kept = {});

}  // namespace owt
