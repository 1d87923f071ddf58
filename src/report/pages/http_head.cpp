#include "src/report/pages/http_head.h"

#include <algorithm>
#include <utility>

namespace owt {
namespace {

std::string_view without_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Removes the text before `end`, and `end`, from the front of `text`. Returns the text before it.
std::string_view take_until(std::string_view& text, std::string_view end) {
  const size_t at = std::min(text.find(end), text.size());
  const std::string_view front = text.substr(0, at);
  text.remove_prefix(std::min(text.size(), at + end.size()));
  return front;
}

// Reads the headers that are used into `request`. Returns 200, or a status that refuses the request.
int read_headers(std::string_view headers, HttpRequest& request) {
  bool has_host = false;
  while (!headers.empty()) {
    std::string_view line = take_until(headers, "\r\n");
    const bool has_value = line.find(':') != line.npos;
    const std::string name = lower_case(take_until(line, ":"));
    if (!has_value || name.empty() || name.find_first_of(" \t") != name.npos) return 400;
    const std::string_view value = without_blanks(line);
    if (name == "host") {
      if (std::exchange(has_host, true)) return 400;
      request.host = lower_case(value);
    }
    if (name == "transfer-encoding" || (name == "content-length" && value != "0")) return 413;
  }
  return 200;
}

}  // namespace

const char* status_text(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
  }
  return "Error";
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if ('A' <= c && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

HttpHead parsed_head(std::string_view head) {
  HttpHead parsed;
  std::string_view line = take_until(head, "\r\n");
  const std::string_view method = take_until(line, " "), target = take_until(line, " "), version = line;
  if (method.empty() || target.empty() || !version.starts_with("HTTP/")) {
    parsed.status = 400;
  } else if (!version.starts_with("HTTP/1.")) {
    parsed.status = 505;
  } else if (method != "GET" && method != "HEAD") {
    parsed.status = 405;
  } else {
    parsed.request.path = target.substr(0, target.find('?'));
    parsed.wants_body = method == "GET";
    parsed.status = read_headers(head, parsed.request);
  }
  return parsed;
}

}  // namespace owt
