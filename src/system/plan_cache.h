// Results of measurements that need not be repeated: texts by key, in memory and in a folder of the user.
//
// A key names everything that a choice depends on: versions, device, precision, and the computation. Each key has its
// own file in the folder, with the key and a checksum. A file that is damaged or has another key is ignored with a
// warning and replaced by the next store(). If the folder is not writable, one warning per process is logged, and the
// choices are kept in memory only.
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
  // $OWT_CACHE, or $XDG_CACHE_HOME/owt, or $HOME/.cache/owt; empty if none of them is set.
  static std::string user_folder();

  explicit PlanCache(std::string folder) : folder_(std::move(folder)) {}  // empty: in memory only

  // Several host threads may call all functions at once.
  std::optional<std::string> find(const std::string& key);
  void store(const std::string& key, const std::string& text);
  void store_for_this_process(const std::string& key, const std::string& text);  // no file

  std::map<std::string, std::string> known() const;  // found or stored in this process

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
