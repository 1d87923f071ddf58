#include "src/system/sockets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace owt::sockets_test {
namespace {

using ::testing::ElementsAre;

std::string bytes_of(uint32_t kind, int32_t rank, uint32_t count, const std::string& text) {
  const auto word = [](auto value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
  return word(kind) + word(rank) + word(count) + text;
}

TEST(Messages, ComeOutWhereverTheirBytesAreCut) {
  const std::string all = bytes_of(7, 1, 3, "one") + bytes_of(8, -2, 0, "") + bytes_of(9, 3, 2, "xy");
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    std::string bytes = all.substr(0, cut);
    std::vector<std::string> texts;
    const auto take = [&](const Message& message) { texts.push_back(message.text); };
    EXPECT_TRUE(take_messages(bytes, take));
    bytes += all.substr(cut);
    EXPECT_TRUE(take_messages(bytes, take));
    EXPECT_THAT(texts, ElementsAre("one", "", "xy")) << "cut behind " << cut;
    EXPECT_EQ(bytes, "");
  }
}

TEST(Messages, WhatClaimsMoreThanAMessageHoldsIsNone) {
  std::string bytes = bytes_of(7, 1, 3, "one") + bytes_of(7, 1, 1 << 30, "much");
  std::vector<std::string> texts;
  EXPECT_FALSE(take_messages(bytes, [&](const Message& message) { texts.push_back(message.text); }));
  EXPECT_THAT(texts, ElementsAre("one"));
}

TEST(Messages, OfATooLongOneAsMuchArrivesAsAMessageHolds) {
  const Listener listener = listen_anywhere();
  MessageConnection mouth = connect_to("127.0.0.1", listener.port, std::chrono::seconds(10)), ear;
  while (!ear.open()) ear = accept_from(listener.socket);
  close(listener.socket);
  mouth.send({7, 1, std::string(100'000, 'x')});
  std::string heard;
  while (heard.empty() && ear.open()) {
    ear.receive([&](const Message& message) { heard = message.text; });
    mouth.flush();
  }
  EXPECT_EQ(heard, std::string(1 << 16, 'x'));
}

TEST(Messages, OneWhoNeverStopsDoesNotKeepTheListenerForEver) {
  const Listener listener = listen_anywhere();
  MessageConnection loud = connect_to("127.0.0.1", listener.port, std::chrono::seconds(10)), ear;
  while (!ear.open()) ear = accept_from(listener.socket);
  close(listener.socket);
  constexpr int kMessages = 4000;
  for (int i = 0; i < kMessages; ++i) loud.send({7, 1, std::string(1000, 'x')});
  int heard = 0, most = 0;
  while (heard < kMessages && ear.open()) {
    int now = 0;
    ear.receive([&](const Message&) { ++now; });
    heard += now;
    most = std::max(most, now);
    loud.flush();
  }
  EXPECT_EQ(heard, kMessages);
  EXPECT_LE(most, 64 * 4096 / 1000);
}

}  // namespace
}  // namespace owt::sockets_test
