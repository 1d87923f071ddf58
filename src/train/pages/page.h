// A report of runs as one HTML document that needs nothing else: no network, no scripts; light or dark as its reader's
// screen is, for phones and for paper.
#pragma once

#include <string>

#include "src/train/pages/sections.h"

namespace owt {

struct PageOptions {
  std::string layer{};               // whose filters; empty: the first with weights
  const Answers* answers = nullptr;  // of the first run; null: the page says how to get them
  const SeenImages* seen = nullptr;  // the same
  bool live = false;  // with a script that puts the page's content anew when the server says so (serve.h)
};

// What a browser may do with it: run the script of the live page and nothing that a name in a run has brought in.
std::string content_policy(const PageOptions& options);

std::string page_of(Runs runs, const PageOptions& options = {});

}  // namespace owt
