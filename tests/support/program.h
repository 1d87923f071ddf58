// Tests that run the program itself, OWT_PROGRAM, in a separate folder.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "src/system/files.h"
#include "tests/support/runs.h"
#include "tests/support/temp_folder.h"

namespace owt {

struct Result {
  int code = -1;
  std::string out, err;
};

class ProgramTest : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string config(const std::string& name) const { return std::string(OWT_SOURCE_DIR) + "/configs/" + name; }

  std::string write(const std::string& name, const std::string& text) const {
    write_bytes(file(name), text);
    return file(name);
  }
  std::string small_recipe(const std::string& extra = "") const { return write("small.toml", kSmallRecipe + extra); }

  // `before`: shell commands before the program, e.g. "ulimit -f 10;".
  Result owt(const std::string& words, const std::string& before = "") const {
    const std::string out = file("stdout"), err = file("stderr");
    const std::string command = before + " '" OWT_PROGRAM "' " + words + " >" + out + " 2>" + err;
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
  }

  TempFolder folder_;
};

}  // namespace owt
