// Sends any bytes, in pieces of any size, to the watch of rank 0, as an unknown client could.
#include "src/comm/watch.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  constexpr uint64_t kToken = 7;
  constexpr int kRanks = 3;
  const std::string_view text = owt::text_of(bytes, count);
  const size_t piece = count == 0 ? 1 : 1 + bytes[0];
  std::string waiting;
  for (size_t begin = 0; begin < count; begin += piece) {
    waiting += text.substr(begin, piece);
    const bool ours = owt::take_messages(waiting, [&](const owt::Message& message) {
      owt::promise(message.text.size() <= count, "a message holds what was said");
      const auto rank = owt::rank_of_hello(message, kToken, kRanks);
      owt::promise(!rank || (*rank > 0 && *rank < kRanks && message.text == "7"), "a hello is that of a rank");
    });
    if (!ours) return 0;
    owt::promise(waiting.size() <= 12 + (1 << 16), "no more is kept than one message");
  }
  return 0;
}
