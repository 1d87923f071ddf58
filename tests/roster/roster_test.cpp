#include "src/roster/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/comm/watch.h"
#include "src/roster/run_address.h"
#include "tests/support/message_of.h"

namespace owt::roster_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A worker as the roster sees it: a connection, and what it has said.
struct Worker {
  MessageConnection connection;
  std::optional<NewWorld> world{};
  std::optional<std::string> call{}, end{};

  void listen() {
    if (!connection.open()) return;
    connection.receive([&](const Message& message) {
      if (message.kind == kWorld) world = new_world_in(message.text), call.reset();
      if (message.kind == kCall) call = message.text;
      if (message.kind == kEnd) end = message.text;
    });
  }
};

class RosterTest : public ::testing::Test {
 protected:
  void keep(const Roster::Limits& limits) {
    const Listener listener = listen_on("127.0.0.1", 0);
    port_ = listener.port;
    roster_.emplace(listener, limits);
  }

  Worker& come(int order, const std::string& host = "here") {
    workers_.push_back(std::make_unique<Worker>(Worker{connect_to("127.0.0.1", port_, std::chrono::seconds(5))}));
    Introduction introduction;
    introduction.host = host;
    introduction.process = 100 + static_cast<int>(workers_.size()) - 1;
    introduction.process_space = process_space();
    introduction.port = 1000 + order;
    introduction.order = order;
    workers_.back()->connection.send({kCome, 0, introduction.text()});
    return *workers_.back();
  }

  void leave(Worker& worker, const std::string& why = "", std::optional<int> lost = {}, bool leaves = false,
             bool did_steps = true) {
    Departure departure;
    departure.world = worker.world->world;
    departure.port = 2000 + worker.world->rank;
    departure.patience_s = 3600;
    departure.leaves = leaves;
    departure.did_steps = did_steps;
    departure.lost = lost;
    departure.why = why;
    worker.connection.send({kReady, 0, departure.text()});
  }

  // What owt ask gets.
  RunAnswer ask(int workers, const std::string& run = "") {
    MessageConnection asker = connect_to("127.0.0.1", port_, std::chrono::seconds(5));
    RunQuestion question;
    question.run = run;
    question.workers = workers;
    asker.send({kAsk, 0, question.text()});
    std::optional<RunAnswer> answer;
    look_until([&] {
      asker.receive([&](const Message& message) { answer = run_answer_in(message.text); });
      return answer || !asker.open();
    });
    return answer.value_or(RunAnswer());
  }
  std::string refusal(int workers, const std::string& run = "") { return ask(workers, run).refusal; }

  // Without a time limit; the limit of the whole test applies.
  template <class Condition>
  void look_until(const Condition& condition) {
    while (!condition()) {
      wait_readable(roster_->sockets(), std::min(roster_->rest(), std::chrono::milliseconds(1)));
      roster_->look();
      for (const auto& worker : workers_) worker->listen();
    }
  }
  void look_until_world(int world, std::initializer_list<const Worker*> workers) {
    look_until([&] {
      return std::ranges::all_of(workers,
                                 [&](const Worker* each) { return each->world && each->world->world == world; });
    });
  }

  std::optional<Roster> roster_;
  int port_ = 0;
  std::vector<std::unique_ptr<Worker>> workers_;
};

TEST_F(RosterTest, TheFirstWorldIsInTheOrderOfTheLaunchers) {
  keep({.first = 3, .least = 2, .most = 3});
  Worker &c = come(2, "there"), &a = come(0), &b = come(1);
  look_until_world(0, {&a, &b, &c});
  EXPECT_EQ(a.world->rank, 0);
  EXPECT_EQ(b.world->rank, 1);
  EXPECT_EQ(c.world->rank, 2);
  for (const Worker* each : {&a, &b, &c}) {
    EXPECT_EQ(each->world->ranks, 3);
    EXPECT_EQ(each->world->port, 1000);
    EXPECT_EQ(each->world->address, "");  // the host of the roster
    EXPECT_EQ(each->world->least, 2);
    EXPECT_EQ(each->world->change, "");
  }
  EXPECT_EQ(b.world->local_rank, 1);
  EXPECT_EQ(b.world->local_ranks, 2);
  EXPECT_EQ(c.world->local_rank, 0);
  EXPECT_EQ(c.world->local_ranks, 1);
  EXPECT_THAT(roster_->take_news(), IsEmpty());
}

TEST_F(RosterTest, ALostRankIsLeftOutAndNamedInTheWordsOfTheOthers) {
  keep({.first = 3, .least = 2, .most = 3});
  Worker &a = come(0), &b = come(1), &c = come(2);
  look_until_world(0, {&a, &b, &c});
  a.connection.close();
  look_until([&] { return b.call && c.call; });
  EXPECT_EQ(*b.call, "lost");
  leave(c, "rank 0 on here was lost: its process has ended; step 7", 0);
  leave(b, "rank 0 on here was lost: its process has ended; step 7", 0);
  look_until_world(1, {&b, &c});
  EXPECT_EQ(b.world->rank, 0);
  EXPECT_EQ(c.world->rank, 1);
  EXPECT_EQ(c.world->ranks, 2);
  EXPECT_EQ(c.world->port, 2001);  // where the new rank 0 listens now
  EXPECT_EQ(b.world->change, "rank 0 on here was lost: its process has ended; step 7");
  EXPECT_THAT(roster_->take_news(),
              ElementsAre("rank 0 on here was lost: its process has ended; step 7; 2 workers continue"));
  EXPECT_THAT(roster_->take_dropped(), IsEmpty());  // it has ended by itself
}

// Rank 1 has not left, and its connection is open: it is stopped.
TEST_F(RosterTest, ARankThatHangsIsDroppedWhenTheOthersHaveNamedIt) {
  keep({.first = 3, .least = 2, .most = 3, .grace_s = 0.01});
  Worker &a = come(0), &b = come(1), &c = come(2);
  look_until_world(0, {&a, &b, &c});
  for (Worker* each : {&a, &c}) leave(*each, "rank 1 was lost: it has not answered", 1);
  look_until_world(1, {&a, &c});
  EXPECT_EQ(a.world->ranks, 2);
  EXPECT_EQ(c.world->rank, 1);
  EXPECT_THAT(roster_->take_dropped(), ElementsAre(101));
  look_until([&] { return b.end.has_value(); });
  EXPECT_EQ(*b.end, "the other workers have given this one up: rank 1 was lost: it has not answered");
}

// Ranks may lose each other when one leaves early. What comes to the roster is not lost.
TEST_F(RosterTest, ARankThatIsNamedAndComesStays) {
  keep({.first = 3, .least = 2, .most = 3, .grace_s = 3600});
  Worker &a = come(0), &b = come(1), &c = come(2);
  look_until_world(0, {&a, &b, &c});
  c.connection.close();
  leave(a, "rank 2 was lost", 2);
  leave(b, "rank 0 was lost", 0);
  look_until_world(1, {&a, &b});
  EXPECT_EQ(b.world->ranks, 2);
  EXPECT_EQ(b.world->change, "rank 2 was lost");
}

TEST_F(RosterTest, AWorkerThatComesLaterJoinsAfterTheOthersAreCalled) {
  keep({.first = 1, .least = 1, .most = 2});
  Worker& a = come(0);
  look_until_world(0, {&a});
  Worker& b = come(0, "there");
  look_until([&] { return a.call.has_value(); });
  EXPECT_EQ(*a.call, "");
  EXPECT_FALSE(b.world.has_value());
  leave(a);
  look_until_world(1, {&a, &b});
  EXPECT_EQ(a.world->rank, 0);
  EXPECT_EQ(b.world->rank, 1);
  EXPECT_EQ(b.world->change, "a worker on there (process 101) joins");
  Worker& c = come(0);
  look_until([&] { return c.end.has_value(); });
  EXPECT_EQ(*c.end, "the run has 2 workers already, which --elastic allows at most");
}

TEST_F(RosterTest, AWorkerThatLeavesInOrderMayGo) {
  keep({.first = 2, .least = 1, .most = 2});
  Worker &a = come(0), &b = come(1);
  look_until_world(0, {&a, &b});
  leave(a, "", {}, /*leaves=*/true);
  leave(b);
  look_until_world(1, {&b});
  look_until([&] { return a.end.has_value(); });
  EXPECT_EQ(*a.end, "");
  EXPECT_EQ(b.world->rank, 0);
  EXPECT_EQ(b.world->change, "rank 0 on here (process 100) leaves, as it was asked to");
}

TEST_F(RosterTest, KnowsWhetherTheRunHasFinished) {
  keep({.first = 1, .least = 1, .most = 1});
  Worker& a = come(0);
  look_until_world(0, {&a});
  EXPECT_EQ(roster_->connected(), 1);
  EXPECT_FALSE(roster_->finished());
  a.connection.send({kFinished, 0, ""});
  a.connection.close();
  look_until([&] { return roster_->connected() == 0; });
  EXPECT_TRUE(roster_->finished());
}

TEST_F(RosterTest, TooFewWorkersEndTheRun) {
  keep({.first = 2, .least = 2, .most = 2});
  Worker &a = come(0), &b = come(1);
  look_until_world(0, {&a, &b});
  b.connection.close();
  leave(a, "rank 1 was lost: its process has ended", 1);
  look_until([&] { return a.end.has_value(); });
  EXPECT_EQ(*a.end, "rank 1 was lost: its process has ended; 1 worker is left, and --elastic wants 2");
  EXPECT_EQ(roster_->end(), a.end);
  a.connection.close();
  look_until([&] { return roster_->connected() == 0; });
}

TEST_F(RosterTest, WorkersThatDoNotComeEndTheRun) {
  keep({.first = 2, .least = 1, .most = 2, .start_s = 0.01});
  Worker& a = come(0);
  look_until([&] { return a.end.has_value(); });
  EXPECT_THAT(*a.end, HasSubstr("of 2 came within 0.01 s"));
}

TEST_F(RosterTest, WorldsWithoutStepsEndTheRun) {
  keep({.first = 1, .least = 1, .most = 1});
  Worker& a = come(0);
  int world = 0;
  for (; !a.end; ++world) {
    look_until([&] { return a.end || (a.world && a.world->world == world); });
    if (!a.end) leave(a, "they could not be connected", {}, /*leaves=*/false, /*did_steps=*/false);
  }
  EXPECT_EQ(world, 6);
  EXPECT_THAT(*a.end, HasSubstr("5 times without a step"));
}

TEST_F(RosterTest, StrangersAreIgnoredAndOtherVersionsRefused) {
  keep({.first = 1, .least = 1, .most = 2});
  Worker stranger{connect_to("127.0.0.1", port_, std::chrono::seconds(5))};
  stranger.connection.send({kCome, 0, "GET / HTTP/1.1"});
  Worker other{connect_to("127.0.0.1", port_, std::chrono::seconds(5))};
  Introduction introduction;
  introduction.version = "0";
  other.connection.send({kCome, 0, introduction.text()});
  Worker& a = come(0);
  look_until([&] { return other.listen(), stranger.listen(), other.end && !stranger.connection.open() && a.world; });
  EXPECT_THAT(*other.end, HasSubstr(concat("speaks version ", kRosterVersion, ", this process version 0")));
  a.connection.send({kReady, 0, "2:no"});
  look_until([&] { return !a.connection.open(); });  // a damaged message ends its connection
}

TEST_F(RosterTest, IfFewerWorkersAreWantedTheLastOnesLeave) {
  keep({.first = 3, .least = 1, .most = 3});
  Worker &a = come(0), &b = come(1), &c = come(2);
  look_until_world(0, {&a, &b, &c});
  RunAnswer answer = ask(1);
  EXPECT_EQ(answer.refusal, "");
  EXPECT_EQ(answer.now, 3);
  EXPECT_EQ(answer.soon, 1);
  look_until([&] { return b.call && c.call; });
  EXPECT_EQ(*b.call, kCallLeave);
  EXPECT_EQ(*c.call, kCallLeave);
  EXPECT_EQ(refusal(2), "the run is still changing to 1 worker; ask again later");
  leave(c, "", {}, /*leaves=*/true);
  for (Worker* each : {&a, &b}) leave(*each);
  look_until_world(1, {&a, &b});
  EXPECT_EQ(ask(0).now, 2);
  EXPECT_EQ(ask(0).soon, 1);
  leave(b, "", {}, /*leaves=*/true);
  leave(a);
  look_until_world(2, {&a});
  EXPECT_FALSE(a.call.has_value());
  answer = ask(1);
  EXPECT_EQ(answer.refusal, "");
  EXPECT_EQ(answer.soon, 1);
  EXPECT_THAT(roster_->take_wanted(), IsEmpty());
  EXPECT_THAT(roster_->take_news(), Contains("asked for 1 worker in place of 3"));
}

TEST_F(RosterTest, IfMoreWorkersAreWantedTheLauncherIsToStartThem) {
  keep({.first = 1, .least = 1, .most = 3});
  Worker& a = come(0);
  look_until_world(0, {&a});
  EXPECT_EQ(ask(3).soon, 3);
  EXPECT_THAT(roster_->take_wanted(), ElementsAre(1, 2));
  EXPECT_THAT(roster_->take_wanted(), IsEmpty());
  Worker& b = come(1);
  look_until([&] { return a.call.has_value(); });
  leave(a);
  look_until_world(1, {&a, &b});
  EXPECT_EQ(refusal(2), "the run is still changing to 3 workers; ask again later");
  roster_->forget(2);  // it cannot be started
  EXPECT_EQ(ask(0).soon, 2);
  EXPECT_EQ(ask(3).soon, 3);
  EXPECT_THAT(roster_->take_wanted(), ElementsAre(3));
}

TEST_F(RosterTest, QuestionsThatCannotBeMetAreRefused) {
  keep({.first = 2, .least = 2, .most = 3});
  Worker& a = come(0);
  EXPECT_EQ(refusal(3), "the run has not begun yet");
  Worker& b = come(1);
  look_until_world(0, {&a, &b});
  EXPECT_EQ(refusal(1), "the run allows 2 to 3 workers (--elastic), not 1");
  EXPECT_EQ(refusal(4), "the run allows 2 to 3 workers (--elastic), not 4");
  EXPECT_EQ(refusal(3, a.world->run), "");
  EXPECT_EQ(refusal(3, "another"), "the run has ended, and another one is at its address");
  a.connection.send({kFinished, 0, ""});
  look_until([&] { return roster_->finished(); });
  EXPECT_EQ(refusal(0), "the run has finished");
}

TEST(RunAddress, IsReadAsItWasWritten) {
  for (const char* text : {"node1:29500", "127.0.0.1:1 4711-12"}) EXPECT_EQ(run_address_in(text)->text(), text);
  EXPECT_EQ(run_address_in("a:1 b")->run, "b");
  for (const char* text : {"", "runs/spot", ":1", "a:", "a:0", "a:65536", "a:1x", "a b:1"})
    EXPECT_FALSE(run_address_in(text).has_value()) << text;
}

TEST(RosterWords, AreReadAsTheyWereWritten) {
  Departure departure;
  departure.world = 3;
  departure.why = "any: text\n";
  departure.leaves = true;
  EXPECT_EQ(departure_in(departure.text()).why, departure.why);
  EXPECT_FALSE(departure_in(departure.text()).lost.has_value());
  departure.lost = 0;
  EXPECT_EQ(departure_in(departure.text()).lost, 0);
  EXPECT_TRUE(departure_in(departure.text()).leaves);
  EXPECT_THAT(message_of([] { static_cast<void>(departure_in("1:x")); }), HasSubstr("1 fields, wanted 7"));
  EXPECT_THAT(message_of([] { static_cast<void>(new_world_in("1:x1:11:11:11:11:a1:11:11:r1:b")); }), HasSubstr("'x'"));
}

}  // namespace
}  // namespace owt::roster_test
