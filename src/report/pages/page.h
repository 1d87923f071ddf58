// A report of runs as one self-contained HTML document: no network access. A script lets readers zoom and compare; all
// is there without it. It is light or dark like its reader's screen, and suits phones and paper.
#pragma once

#include <string>

#include "src/report/pages/sections.h"

namespace owt {

struct PageOptions {
  std::string layer{};               // layer whose filters are shown; empty: the first with weights
  const Answers* answers = nullptr;  // answers of the first run; null: the page says how to get them
  const SeenImages* seen = nullptr;  // images of the first run; null: the page says how to get them
  bool in_list = false;              // a link leads to the list of runs at ../../
  bool live = false;  // with another script that replaces the page's content when the server reports changes (serve.h)
};

// The content security policy: allows the script of the live page, and nothing that a name in a run might inject.
std::string content_policy(const PageOptions& options);

std::string page_of(Runs runs, const PageOptions& options = {});

// A live page that lists the runs of a folder, with links to "run/NAME/" and the curves of all.
std::string list_page_of(Runs runs, const std::string& folder);
std::string name_in_url(const std::string& name);  // percent-encoded, for these links

}  // namespace owt
