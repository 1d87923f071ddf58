#include "src/system/lazy_library.h"

#include <dlfcn.h>

namespace owt {

void* LazyLibrary::address_of(const char* function) {
  const std::lock_guard lock(mutex_);
  if (!handle_) handle_ = dlopen(file_, RTLD_NOW | RTLD_LOCAL);
  if (!handle_)
    fail(name_, " cannot be loaded (", dlerror(), "); install ", package_,
         ", or name its folder in LD_LIBRARY_PATH, or ", without_);
  void* const address = dlsym(handle_, function);
  if (!address) fail(file_, " has no function ", function, ": install a newer ", name_, ", or ", without_);
  return address;
}

}  // namespace owt
