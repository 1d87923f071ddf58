// The messages between the roster of a run, its workers, and owt ask. For this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace owt {

enum RosterWord : uint32_t {
  kCome = 0x6f777601,  // a worker that is in no world yet; text: an Introduction
  kReady,              // a worker that has left its world; text: a Departure
  kFinished,           // rank 0: the run has ended well
  kCall,               // text: one of the calls below
  kWorld,              // text: a NewWorld
  kEnd,                // text: the reason why there is no world for this worker; empty: it may leave, as it wished
  kAsk,                // anybody; text: a RunQuestion
  kAnswer,             // text: a RunAnswer
};

constexpr auto kCallChange = "";      // all: come after this step, the workers change
constexpr auto kCallLost = "lost";    // all: the world has lost a worker
constexpr auto kCallLeave = "leave";  // this worker: leave the run after this step

constexpr auto kRosterVersion = "2";  // version of the messages

// text(): for a Message. Each function ..._in() throws Error for text from another program.
struct Introduction {
  std::string version = kRosterVersion;
  std::string host;           // its name
  int process = 0;            // its number in the process space (watch.h)
  std::string process_space;  // empty: unknown
  int port = 0;               // where it listens if it becomes rank 0
  int order = -1;             // place among the ranks of the first world; -1: it comes later
  std::string text() const;
};
Introduction introduction_in(const std::string& text);

struct Departure {
  int world = 0;            // number of the world that it has left
  int port = 0;             // see Introduction
  int patience_s = 0;       // other ranks leave that world within this time, or are lost
  bool leaves = false;      // it wants to be in no further world
  bool did_steps = false;   // the world has done steps
  std::optional<int> lost;  // a rank of that world that is lost
  std::string why;          // why the world has ended, for people; empty: for a change in order
  std::string text() const;
};
Departure departure_in(const std::string& text);

struct NewWorld {
  int world = 0;  // its number, from 0
  int rank = 0, ranks = 1, local_rank = 0, local_ranks = 1;
  std::string address;  // the host of rank 0; empty: the host of the roster
  int port = 0;         // where rank 0 listens
  int least = 1;        // workers that every world has
  std::string run;      // RunAddress::run
  std::string change;   // from the world before, for people
  std::string text() const;
};
NewWorld new_world_in(const std::string& text);

struct RunQuestion {
  std::string version = kRosterVersion;
  std::string run;  // RunAddress::run
  int workers = 0;  // wanted; 0: any number
  std::string text() const;
};
RunQuestion run_question_in(const std::string& text);

struct RunAnswer {
  int now = 0, least = 1, most = 1, soon = 0;  // see RunWorkers
  std::string refusal;                         // why the run does not change as wanted; empty: it does
  std::string text() const;
};
RunAnswer run_answer_in(const std::string& text);

}  // namespace owt
