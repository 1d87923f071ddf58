// What was measured once and need not be measured again: texts by key, in memory and in a folder of the user's.
//
// A key says all that a choice depends on: versions, device, precision, what is computed. Each key has a file of its
// own in the folder, which holds the key too and a checksum. A file that is damaged, or belongs to another key, is
// ignored with a warning and renewed by the next store(). A folder that cannot be written is one warning per process;
// the choices then live as long as the process.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace owt {

class PlanCache {
 public:
  // The cache of this process, in user_folder().
  static PlanCache& process();
  // $OWT_CACHE, else $XDG_CACHE_HOME/owt, else $HOME/.cache/owt; empty where none of them is set.
  static std::string user_folder();

  explicit PlanCache(std::string folder) : folder_(std::move(folder)) {}  // empty: in memory only

  // All may be called by several host threads at once.
  std::optional<std::string> find(const std::string& key);
  void store(const std::string& key, const std::string& text);
  void store_for_this_process(const std::string& key, const std::string& text);  // no file

  std::map<std::string, std::string> known() const;  // what was found or stored in this process

  std::string path_of(const std::string& key) const;

 private:
  std::optional<std::string> read(const std::string& key) const;
  void write(const std::string& key, const std::string& text);

  std::string folder_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> known_;
  bool warned_ = false;
};

}  // namespace owt
