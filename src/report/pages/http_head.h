// The head of an HTTP request, and the status of an answer.
#pragma once

#include <string>
#include <string_view>

namespace owt {

struct HttpRequest {
  std::string path;  // without '?' and what follows it
  std::string host;  // from the header, in lower case, with or without a port; empty if missing
};

struct HttpHead {
  int status = 200;  // otherwise the refusal
  HttpRequest request{};
  bool wants_body = true;
};

// head: without its final empty line.
HttpHead parsed_head(std::string_view head);

const char* status_text(int status);

std::string lower_case(std::string_view text);  // ASCII letters only

}  // namespace owt
