#include "src/comm/thread_messages.h"

#include <gtest/gtest.h>

namespace owt::thread_messages_test {
namespace {

TEST(ThreadMessages, AreFreedAfterAFailureThoughOneWaitedForItsReceiver) {
  auto messages = std::make_shared<ThreadMessages>();
  const std::weak_ptr<ThreadMessages> watched = messages;
  const Event sent = messages->run({.collective = Collective::kSend, .in = Tensor({1}), .root = 1}, 0, Stream());
  messages->abort();
  EXPECT_THROW(sent.wait(), Aborted);
  messages.reset();
  EXPECT_FALSE(watched.expired());  // the event may still be asked
}

TEST(ThreadMessages, AreFreedWithTheEventOfTheMessageThatWaited) {
  auto messages = std::make_shared<ThreadMessages>();
  const std::weak_ptr<ThreadMessages> watched = messages;
  messages->run({.collective = Collective::kSend, .in = Tensor({1}), .root = 1}, 0, Stream());
  messages->abort();
  messages.reset();
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace owt::thread_messages_test
