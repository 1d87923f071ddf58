// The owt program: finds the subcommand, and turns errors into exit codes.
//   0 success; 1 failure, with one line on stderr; 2 wrong command line; 75 stopped by a signal after a
//   checkpoint
#include <iostream>

#include "src/comm/launch.h"
#include "src/comm/processes.h"
#include "src/core/dispatch.h"
#include "src/roster/membership.h"
#include "src/system/cpu_level.h"
#include "src/system/log.h"
#include "src/system/own_words.h"
#include "src/system/process_start.h"
#include "src/system/version.h"
#include "tools/commands.h"

namespace {

// How a command runs under mpirun: on all processes together, or on rank 0 alone.
enum class Under { kTogether, kAlone };

struct Command {
  const char* name;
  int (*run)(const owt::Arguments&);
  Under launcher;
  const char* about;
};

constexpr Command kCommands[] = {
    {"train", owt::command_train, Under::kTogether, "train a network from a recipe"},
    {"eval", owt::command_eval, Under::kTogether, "measure the accuracy of a trained network"},
    {"predict", owt::command_predict, Under::kAlone, "classify photos with a trained network"},
    {"extract", owt::command_extract, Under::kAlone, "write the outputs of a layer as features, for NumPy"},
    {"verify", owt::command_verify, Under::kAlone, "compare pairs of images by their embeddings"},
    {"time", owt::command_time, Under::kTogether, "show where the time of a training step goes, layer by layer"},
    {"check", owt::command_check, Under::kAlone, "check a step's gradients, under any strategy"},
    {"simulate", owt::command_simulate, Under::kAlone, "train in simulated time, with stragglers and slow links"},
    {"plan", owt::command_plan, Under::kAlone, "show what each worker computes and sends under each strategy"},
    {"bench-comm", owt::command_bench_comm, Under::kTogether, "measure how long collectives between workers take"},
    {"bench-data", owt::command_bench_data, Under::kAlone, "measure how many images per second the loader makes"},
    {"launch", owt::command_launch, Under::kTogether, "start the processes of a run, on one or several hosts"},
    {"ask", owt::command_ask, Under::kAlone, "show or change the number of workers of a run"},
    {"report", owt::command_report, Under::kAlone, "write an HTML page about one or more runs"},
    {"watch", owt::command_watch, Under::kAlone, "serve that page to a browser while a run trains"},
    {"prepare", owt::command_prepare, Under::kAlone, "make or unpack a data set"},
    {"average", owt::command_average, Under::kAlone, "average a run's last checkpoints into one weights file"},
    {"export", owt::command_export, Under::kAlone, "write a trained network as ONNX"},
    {"import", owt::command_import, Under::kAlone, "make a model file and weights of an ONNX network"},
    {"devices", owt::command_devices, Under::kAlone, "list the devices of this machine"},
    {"recipes", owt::command_recipes, Under::kAlone, "list the recipes and models that can be given by name"},
    {"inspect", owt::command_inspect, Under::kAlone, "show what is in a recipe, a model, a checkpoint or a data set"},
    {"completion", owt::command_completion, Under::kAlone, "print the completion of owt for bash, zsh or fish"},
};

constexpr const char* kMoreHelp = R"(
First steps:
  owt train quickstart              trains a small network with two workers, in less than a minute
  owt eval runs/quickstart          measures its accuracy
  owt plan alexnet_owt --workers 4  shows what four workers would send each other to train AlexNet

Most commands take CONFIG: a TOML file, a run folder, or a name. For a name, owt looks for NAME.toml in ./configs and
./configs/models, then in the two folders of the same names that came with owt; 'owt recipes' lists all names.

'owt COMMAND --help' lists a command's options. Exit codes: 0 done, 1 failed (one line says why and what to do), 2 wrong
command line, 75 stopped by a signal after writing a checkpoint (owt train RUN --resume auto resumes).

The wheel also has 'owt log-to', which sends runs to Weights & Biases, MLflow or TensorBoard (docs/python.md).
)";

void print_help(std::ostream& out) {
  out << "owt " << owt::program_version()
      << ": trains convolutional networks, convolutions data parallel, dense layers tensor parallel\n\n"
         "Usage: owt COMMAND ...\n\nCommands:\n";
  for (const Command& command : kCommands) {
    std::string name = command.name;
    name.resize(12, ' ');
    out << "  " << name << command.about << '\n';
  }
  out << kMoreHelp;
}

bool asks_for_help(const std::string& word) { return word == "--help" || word == "-h" || word == "help"; }

}  // namespace

namespace owt {
namespace {

// Every message about a wrong command line says where the options are listed.
int run_command(const Command& command, const Arguments& words) {
  try {
    return command.run(words);
  } catch (const UsageError& e) {
    const std::string what = e.what();
    if (what.find("--help") != std::string::npos) throw;
    throw UsageError(concat(what, " (see 'owt ", command.name, " --help')"));
  }
}

}  // namespace

std::vector<HelpEntry> program_commands() {
  std::vector<HelpEntry> commands;
  for (const Command& command : kCommands) commands.push_back({command.name, command.about});
  return commands;
}

int run_program(const Arguments& words) {
  if (words.empty()) {
    print_help(std::cerr);
    return 2;
  }
  if (asks_for_help(words[0])) {
    if (words.size() > 1 && !asks_for_help(words[1])) {
      Arguments of_command(words.begin() + 1, words.end());
      of_command.push_back("--help");
      return run_program(of_command);
    }
    print_help(std::cout);
    return 0;
  }
  if (words[0] == "--version") {
    std::cout << "owt " << program_version() << (kCudaBuilt ? ", with" : ", without") << " the CUDA back-end\n";
    return 0;
  }
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (words[0] == command.name) {
      if (command.launcher == Under::kAlone && launch().rank > 0) return 0;
      return run_command(command, {words.begin() + 1, words.end()});
    }
    names.push_back(command.name);
  }
  if (words[0] == "log-to") throw UsageError("log-to is a command of the Python package: see docs/python.md");
  const std::string near = nearest(words[0], names);
  throw UsageError("no command '" + words[0] + "'" + (near.empty() ? "; " : "; did you mean '" + near + "'? ") +
                   "owt --help lists all");
}

}  // namespace owt

int main(int count, char** words) {
  owt::start_process();
  try {
    owt::hold_onednn_to_allowed_level();
    if (owt::has_roster()) owt::come_to_roster();
    owt::log_quiet(owt::launch().rank != 0);
    const int code = owt::run_program({words + 1, words + count});
    std::cout.flush();
    if (!std::cout) owt::fail("cannot write to the standard output");
    owt::end_together(code);
    return code;
  } catch (const owt::UsageError& e) {
    return owt::end_with_error(e, owt::fit_for_message(e.what()), 2);
  } catch (const std::bad_alloc& e) {
    return owt::end_with_error(e, "out of memory; use a smaller batch or a smaller network", 1);
  } catch (const std::exception& e) {
    return owt::end_with_error(e, owt::fit_for_message(owt::own_words(e)), 1);
  }
}
