#include "src/comm/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "src/comm/stuck.h"
#include "src/system/sockets.h"
#include "tests/support/environment.h"
#include "tests/support/message_of.h"

namespace owt::watch_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Without a time limit; the limit of the whole test applies.
template <class Condition>
void wait_until(const Condition& condition) {
  while (!condition()) std::this_thread::sleep_for(1ms);
}

// Ranks with a watch each, all in this process.
class Watched : public ::testing::Test {
 protected:
  struct Rank {
    LostRanks lost_ranks;
    std::atomic<int> calls{0};  // when it was overdue
    std::unique_ptr<Watch> watch;
  };

  void start(int ranks) {
    for (int r = 0; r < ranks; ++r) {
      ranks_.push_back(std::make_unique<Rank>());
      peers_.push_back({concat("host", r), 100 + r});
    }
    Watch::Rendezvous rendezvous;
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        Rank& one = rank(r);
        const std::vector<Watch::Overdue> overdue{{0ms, [&one] { ++one.calls; }}};
        one.watch = r == 0 ? std::make_unique<Watch>(rendezvous, peers_, one.lost_ranks, overdue)
                           : std::make_unique<Watch>(rendezvous.address(), r, peers_, one.lost_ranks, overdue);
      });
    for (std::thread& thread : threads) thread.join();
  }

  Rank& rank(int r) { return *ranks_[static_cast<size_t>(r)]; }
  void end(int r) { rank(r).watch.reset(); }

  // What the rank has heard of, when it has heard of something.
  std::string heard(int r) {
    wait_until([&] { return rank(r).calls > 0; });
    return rank(r).lost_ranks.text("");
  }

 private:
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Peer> peers_;
};

TEST_F(Watched, ARankThatEndsIsNamedToAllOthers) {
  start(4);
  end(2);
  for (const int r : {0, 1, 3}) EXPECT_EQ(heard(r), "rank 2 on host2 (process 102) was lost: its process has ended");
  for (const int r : {0, 1, 3}) EXPECT_EQ(rank(r).calls, 1);
}

TEST_F(Watched, AllOthersNoticeTheEndOfRank0) {
  start(3);
  end(0);
  for (const int r : {1, 2}) EXPECT_EQ(heard(r), "rank 0 on host0 (process 100) was lost: its process has ended");
}

TEST_F(Watched, WhoSaysGoodbyeIsNotLost) {
  start(3);
  for (const int r : {2, 0}) {
    rank(r).watch->say_goodbye();
    end(r);
  }
  std::this_thread::sleep_for(500ms);
  EXPECT_EQ(rank(1).calls, 0);
  EXPECT_FALSE(rank(1).lost_ranks.any());
}

TEST_F(Watched, AFailureReachesAllOthersBeforeItsRankEnds) {
  start(3);
  rank(1).watch->say_failed("no space left");
  EXPECT_TRUE(rank(0).lost_ranks.any());
  end(1);
  for (const int r : {0, 2}) EXPECT_EQ(heard(r), "rank 1 failed: no space left");
  EXPECT_FALSE(rank(1).lost_ranks.any());
}

TEST_F(Watched, AFailureOfRank0ReachesAll) {
  start(3);
  rank(0).watch->say_failed("no space left");
  end(0);
  for (const int r : {1, 2}) EXPECT_EQ(heard(r), "rank 0 failed: no space left");
}

TEST_F(Watched, TheFirstLossStays) {
  start(3);
  end(1);
  heard(0), heard(2);
  end(2);
  EXPECT_THAT(heard(0), HasSubstr("rank 1"));
}

TEST(Watch, LeavesTheRestOfTheProcessTimeToEnd) {
  Watch::Rendezvous rendezvous;
  const std::vector<Peer> peers{{"here", 1}, {"there", 2}};
  LostRanks lost_ranks, lost_ranks_there;
  std::unique_ptr<Watch> other;
  std::thread there([&] {
    other = std::make_unique<Watch>(rendezvous.address(), 1, peers, lost_ranks_there, std::vector<Watch::Overdue>{});
  });
  std::atomic<int> early{0};
  std::atomic<bool> overdue{false};
  Clock::time_point at;
  const Watch watch(rendezvous, peers, lost_ranks, {{0ms, [&] { ++early; }}, {400ms, [&] {
                                                                                at = Clock::now();
                                                                                overdue = true;
                                                                              }}});
  there.join();
  const auto lost = Clock::now();
  other.reset();
  wait_until([&] { return overdue.load(); });
  EXPECT_TRUE(lost_ranks.any());
  EXPECT_GE(at - lost, 400ms);
  EXPECT_EQ(early, 1);
}

// A rank that says hello and then is silent, like a stopped process.
TEST(Watch, SilenceLongerThanTheTimeoutIsALoss) {
  set_watch_timeout(0.6);
  Watch::Rendezvous rendezvous;
  std::istringstream address(rendezvous.address());
  std::string token;
  int port = 0;
  address >> token >> port;
  MessageConnection silent = connect_to("127.0.0.1", port, 1min);
  silent.send({0x6f777401, 1, token});
  LostRanks lost_ranks;
  std::atomic<bool> lost{false};
  const auto began = Clock::now();
  const Watch watch(rendezvous, {{"here", 1}, {"there", 2}}, lost_ranks, {{0ms, [&] { lost = true; }}});
  wait_until([&] { return lost.load(); });
  EXPECT_GE(Clock::now() - began, 600ms);
  EXPECT_EQ(lost_ranks.text(""), "rank 1 on there (process 2) was lost: it has not answered for 0.6 s");
  set_watch_timeout(20);
}

// A process that sleeps until it is killed.
pid_t idle_process() {
  const pid_t process = fork();
  if (process != 0) return process;
  while (true) pause();
}

TEST(Watch, WhoWasGivenUpAndIsStillThereIsKilledWhenRank0EndsOnItsOwnHostAlone) {
  set_watch_timeout(0.6);
  Watch::Rendezvous rendezvous;
  std::istringstream address(rendezvous.address());
  std::string token;
  int port = 0;
  address >> token >> port;
  const pid_t here = idle_process(), elsewhere = idle_process();
  MessageConnection of_here = connect_to("127.0.0.1", port, 1min), of_elsewhere = connect_to("127.0.0.1", port, 1min);
  of_here.send({0x6f777401, 1, token});
  of_elsewhere.send({0x6f777401, 2, token});
  LostRanks lost_ranks;
  lost_ranks.tolerate({1, 2});
  Watch watch(rendezvous,
              {{"here", getpid(), process_space()}, {"here", here, process_space()}, {"there", elsewhere, "another"}},
              lost_ranks, {});
  wait_until([&] { return lost_ranks.gone() == 2; });
  int how = 0;
  EXPECT_EQ(waitpid(here, &how, WNOHANG), 0);  // it may continue and report why it ends
  watch.say_goodbye();
  EXPECT_EQ(waitpid(here, &how, 0), here);
  EXPECT_TRUE(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
  EXPECT_EQ(waitpid(elsewhere, &how, WNOHANG), 0);
  kill(elsewhere, SIGKILL);
  waitpid(elsewhere, &how, 0);
  set_watch_timeout(20);
}

// A rank that ends before rank 0 has even looked for it.
TEST(Watch, WhoEndsRightAfterItsHelloIsLost) {
  Watch::Rendezvous rendezvous;
  std::istringstream address(rendezvous.address());
  std::string token;
  int port = 0;
  address >> token >> port;
  MessageConnection brief = connect_to("127.0.0.1", port, 1min);
  brief.send({0x6f777401, 1, token});
  brief.close();
  LostRanks lost_ranks;
  std::atomic<bool> lost{false};
  const Watch watch(rendezvous, {{"here", 1}, {"there", 2}}, lost_ranks, {{0ms, [&] { lost = true; }}});
  wait_until([&] { return lost.load(); });
  EXPECT_EQ(lost_ranks.text(""), "rank 1 on there (process 2) was lost: its process has ended");
}

// The timeout is long enough for a thread that a busy machine holds up.
TEST(Watch, Rank0IsNotLostWhileItWaitsForOthers) {
  set_watch_timeout(3);
  Watch::Rendezvous rendezvous;
  const std::vector<Peer> peers{{"here", 1}, {"there", 2}, {"late", 3}};
  std::vector<LostRanks> lost_ranks(3);
  std::vector<std::unique_ptr<Watch>> watches(3);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      const std::vector<Watch::Overdue> overdue{{0ms, [] {}}};
      if (r == 2) std::this_thread::sleep_for(4s);
      watches[r] =
          r == 0 ? std::make_unique<Watch>(rendezvous, peers, lost_ranks[r], overdue)
                 : std::make_unique<Watch>(rendezvous.address(), static_cast<int>(r), peers, lost_ranks[r], overdue);
    });
  for (std::thread& thread : threads) thread.join();
  for (const LostRanks& heard : lost_ranks) EXPECT_EQ(heard.text(""), "");
  for (const auto& watch : watches) watch->say_goodbye();
  set_watch_timeout(20);
}

TEST(Watch, ARankThatComesTwiceCountsOnce) {
  Watch::Rendezvous rendezvous;
  std::istringstream address(rendezvous.address());
  std::string token;
  int port = 0;
  address >> token >> port;
  MessageConnection given_up = connect_to("127.0.0.1", port, 1s), again = connect_to("127.0.0.1", port, 1s);
  given_up.send({0x6f777401, 1, token});
  again.send({0x6f777401, 1, token});
  std::atomic<bool> began{false}, ended{false};
  LostRanks lost_ranks;
  std::thread there([&] {
    const Watch watch(rendezvous, {{"here", 1}, {"there", 2}, {"late", 3}}, lost_ranks, {});
    began = true;
    ended.wait(false);
  });
  std::this_thread::sleep_for(300ms);
  EXPECT_FALSE(began);  // rank 2 has not connected
  MessageConnection late = connect_to("127.0.0.1", port, 1s);
  late.send({0x6f777401, 2, token});
  for (int i = 0; i < 1000 && !began; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(began);
  EXPECT_FALSE(lost_ranks.any());
  ended = true;
  ended.notify_all();
  there.join();
}

// A listener that accepts no more connections: the next connection hangs until one side gives up.
class FullListener {
 public:
  FullListener() {
    socket_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_, 0), 0);
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    for (int i = 0; i < 2; ++i) {
      waiting_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      connect(waiting_.back(), reinterpret_cast<sockaddr*>(&address), size);
    }
    std::this_thread::sleep_for(50ms);
  }
  ~FullListener() {
    for (const int socket : waiting_) close(socket);
    close(socket_);
  }
  int port() const { return port_; }

 private:
  int socket_ = -1, port_ = 0;
  std::vector<int> waiting_;
};

TEST(ConnectTo, ASignalIsNoConnection) {
  const FullListener full;
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  sigaction(SIGUSR2, &nothing, nullptr);
  std::atomic<bool> ended{false};
  std::string said;
  std::thread caller([&] {
    try {
      connect_to("127.0.0.1", full.port(), 400ms);
      said = "connected";
    } catch (const Error& e) {
      said = e.what();
    }
    ended = true;
  });
  while (!ended) {
    pthread_kill(caller.native_handle(), SIGUSR2);
    std::this_thread::sleep_for(5ms);
  }
  caller.join();
  EXPECT_EQ(said, "no answer");
}

TEST(AllowOpenFiles, RaisesTheLimitOfThisProcess) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit few = before;
  few.rlim_cur = 64;
  setrlimit(RLIMIT_NOFILE, &few);
  allow_open_files(200);
  rlimit now{};
  getrlimit(RLIMIT_NOFILE, &now);
  EXPECT_EQ(now.rlim_cur, 200u);
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(StartTimeout, IsWhatTheEnvironmentSays) {
  EXPECT_EQ(start_timeout(), 60);
  setenv("OWT_START_TIMEOUT", "300", 1);
  EXPECT_EQ(start_timeout(), 300);
  for (const char* nonsense : {"", "soon", "5 min", "0", "nan"}) {
    setenv("OWT_START_TIMEOUT", nonsense, 1);
    EXPECT_THROW(start_timeout(), Error) << nonsense;
  }
  unsetenv("OWT_START_TIMEOUT");
}

TEST(StartTimeout, EndsTheWaitForRanksThatDoNotConnect) {
  const Variable timeout("OWT_START_TIMEOUT", "1");
  Watch::Rendezvous rendezvous;
  LostRanks lost_ranks;
  EXPECT_THAT(message_of([&] {
                Watch(rendezvous, {{"here", 1}, {"there", 2}}, lost_ranks, {});
              }),
              AllOf(HasSubstr("have not connected to rank 0 on here over TCP within 1 s: 1 on there"),
                    HasSubstr("OWT_START_TIMEOUT")));
}

TEST(Watch, Rank0MayOpenAsManyFilesAsThereAreRanks) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit few = before;
  few.rlim_cur = 64;
  setrlimit(RLIMIT_NOFILE, &few);
  Watch::Rendezvous rendezvous;
  LostRanks lost_ranks;
  const Watch alone(rendezvous, {{"here", 1}}, lost_ranks, {});
  rlimit now{};
  getrlimit(RLIMIT_NOFILE, &now);
  EXPECT_GT(now.rlim_cur, 64u);
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(Watch, StrangersAreNotTakenForRanks) {
  Watch::Rendezvous rendezvous;
  std::istringstream address(rendezvous.address());
  std::string token;
  int port = 0;
  address >> token >> port;
  MessageConnection stranger = connect_to("127.0.0.1", port, 1min), chatter = connect_to("127.0.0.1", port, 1min);
  stranger.send({0x6f777401, 1, "1234"});
  chatter.send({77, 1, token});
  LostRanks lost_ranks, lost_ranks_there;
  std::unique_ptr<Watch> other;
  std::thread there([&] {
    other = std::make_unique<Watch>(rendezvous.address(), 1, std::vector<Peer>{{"here", 1}, {"there", 2}},
                                    lost_ranks_there, std::vector<Watch::Overdue>{});
  });
  const Watch watch(rendezvous, {{"here", 1}, {"there", 2}}, lost_ranks, {});
  there.join();
  for (MessageConnection* one : {&stranger, &chatter}) {
    wait_until([&] {
      one->receive([](const Message&) { ADD_FAILURE() << "a stranger was answered"; });
      return !one->open();
    });
  }
  EXPECT_FALSE(lost_ranks.any());
}

// Ranks 1 and 2 are connections of the test. Rank 1 reports that it computes, but shows no sign of work; all others
// wait.
TEST(Watch, ARankWithoutProgressLearnsThatItWasGivenUpAndTheOthersWhichItIs) {
  constexpr uint32_t kHello = 0x6f777401, kAlive = kHello + 2, kLost = kHello + 6;
  set_watch_timeout(0.6);
  set_stall_timeout(1);
  Watch::Rendezvous rendezvous;
  std::istringstream address(rendezvous.address());
  std::string token;
  int port = 0;
  address >> token >> port;
  std::vector<MessageConnection> ranks;
  for (const int rank : {1, 2}) {
    ranks.push_back(connect_to("127.0.0.1", port, 1min));
    ranks.back().send({kHello, rank, token});
  }
  const std::string standings[] = {Standing{WaitsFor::kNothing, 1000, 7, "all_reduce"}.text(),
                                   Standing{WaitsFor::kOthers, 1000, 8, "all_gather"}.text()};
  std::vector<std::string> texts(2);
  LostRanks lost_ranks;
  std::thread([&] {
    this_thread_is_the_rank();
    const Waits waits(WaitsFor::kOthers);
    const Watch watch(rendezvous, {{"zero", 10}, {"one", 11}, {"two", 12}}, lost_ranks, {});
    wait_until([&] {
      for (size_t r = 0; r < 2; ++r) {
        ranks[r].send({kAlive, static_cast<int>(r) + 1, standings[r]});
        ranks[r].receive([&](const Message& message) {
          if (message.kind == kLost) texts[r] = message.text;
        });
      }
      return !texts[0].empty() && !texts[1].empty();
    });
  }).join();
  EXPECT_THAT(texts[0], HasSubstr("the other ranks have given this one up: it has shown no sign of work for 1000 s"));
  EXPECT_THAT(texts[1], HasSubstr("rank 1 on one (process 11) makes no progress: it has shown no sign of work"));
  EXPECT_EQ(lost_ranks.text(""), texts[1]);
  set_watch_timeout(20);
  set_stall_timeout(600);
}

TEST(Hello, IsThatOfARankThatKnowsTheToken) {
  constexpr uint32_t kHello = 0x6f777401;
  EXPECT_EQ(rank_of_hello({kHello, 2, "99"}, 99, 3), 2);
  for (const Message& message : {Message{kHello, 2, "98"}, Message{kHello, 2, "99 "}, Message{kHello, 0, "99"},
                                 Message{kHello, 3, "99"}, Message{kHello, -1, "99"}, Message{kHello + 1, 2, "99"}})
    EXPECT_EQ(rank_of_hello(message, 99, 3), std::nullopt);
}

}  // namespace
}  // namespace owt::watch_test
