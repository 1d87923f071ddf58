#include "src/roster/run_address.h"

#include <charconv>

#include "src/roster/roster_words.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);  // for a connection, and for an answer

}  // namespace

std::string RunAddress::text() const { return concat(host, ':', port, run.empty() ? "" : " ", run); }

std::optional<RunAddress> run_address_in(const std::string& text) {
  RunAddress address;
  const size_t space = std::min(text.find(' '), text.size()), colon = text.rfind(':', space);
  if (colon == std::string::npos || colon == 0) return {};
  address.host = text.substr(0, colon);
  const char* const end = text.data() + space;
  const auto [stopped, error] = std::from_chars(text.data() + colon + 1, end, address.port);
  if (error != std::errc() || stopped != end || address.port < 1 || address.port > 65535) return {};
  if (space < text.size()) address.run = text.substr(space + 1);
  return address;
}

ReachedRoster reach_roster(const RunAddress& address) {
  std::string tried;
  for (const std::string& one : addresses_of(address.host)) try {
      return {connect_to(one, address.port, kPatience), one};
    } catch (const Error& e) {
      tried += concat(tried.empty() ? "" : ", ", one, ": ", e.what());
    }
  fail("cannot reach the run at ", address.host, ":", address.port, " (", tried, "); is it running",
       address.host.starts_with("127.") ? ", and on this host?" : "?");
}

RunWorkers ask_roster(const RunAddress& address, int workers) {
  MessageConnection connection = reach_roster(address).connection;
  RunQuestion question;
  question.run = address.run;
  question.workers = workers;
  connection.send({kAsk, 0, question.text()});
  std::optional<RunAnswer> answer;
  for (const auto end = std::chrono::steady_clock::now() + kPatience;
       !answer && connection.open() && std::chrono::steady_clock::now() < end;) {
    connection.flush();
    wait_readable({connection.socket()}, std::chrono::milliseconds(100));
    connection.receive([&](const Message& message) {
      if (message.kind == kAnswer) answer = run_answer_in(message.text);
    });
  }
  if (!answer) fail("what is at ", address.host, ":", address.port, " does not answer as owt launch --elastic");
  if (!answer->refusal.empty()) fail(answer->refusal);
  return {answer->now, answer->least, answer->most, answer->soon};
}

}  // namespace owt
