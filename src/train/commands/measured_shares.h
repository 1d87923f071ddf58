// parallel.shares = "measured".
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/train/session.h"

namespace owt {

// Shares in proportion to the speeds of workers that took so long for the same rows, positive numbers: the fastest has
// 1, rounded to thousandths. Where no worker is kSameSpeed times as fast as another all have 1.
constexpr double kSameSpeed = 1.05;
std::vector<double> shares_from(std::span<const double> seconds);

// "worker 0 1.000, worker 1 0.524"
std::string shares_text(std::span<const double> shares);

// Where the recipe leaves the shares of the workers to the program: those of `kept`, which a checkpoint has of as many
// workers, else what each worker's forward and backward of a few steps take, here and now, all at the same time. The
// recipe keeps the word, since other workers have other speeds. Returns a line for the log; empty: there is nothing to
// say. To be called by all processes of a launch, before the ranks run.
std::string settle_shares(Settings& settings, const Session& session, const std::vector<double>& kept = {});

}  // namespace owt
