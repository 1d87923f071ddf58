// CUDA's libraries, opened at the first call of one of their functions. The program starts fast, and it runs and trains
// on the CPU if they are not installed. For .cu files.
#pragma once

#include <atomic>
#include <mutex>

#include "src/system/check.h"

namespace owt {

class LazyLibrary {
 public:
  // The file name for the loader, the library's name in messages, the package to install, and what to do without it.
  constexpr LazyLibrary(const char* file, const char* name, const char* package,
                        const char* without = "run with --device cpu")
      : file_(file), name_(name), package_(package), without_(without) {}

  // The address of a function. Throws Error with the cure if the library or the function is missing.
  void* address_of(const char* function);

 private:
  const char *file_, *name_, *package_, *without_;
  std::mutex mutex_;
  void* handle_ = nullptr;  // never closed
};

// Can be called like the library function that it represents.
template <class Function>
class LazyFunction;

template <class Result, class... Arguments>
class LazyFunction<Result(Arguments...)> {
 public:
  constexpr LazyFunction(LazyLibrary& library, const char* name) : library_(library), name_(name) {}

  Result operator()(Arguments... arguments) {
    void* address = address_.load(std::memory_order_acquire);
    if (!address) address_.store(address = library_.address_of(name_), std::memory_order_release);
    return reinterpret_cast<Result (*)(Arguments...)>(address)(arguments...);
  }

 private:
  LazyLibrary& library_;
  const char* name_;
  std::atomic<void*> address_{nullptr};
};

}  // namespace owt

// Inside namespace owt, after the header that declares ::function: unqualified calls go through `library`. The
// simulated GPU defines these functions itself and has its own version of this macro.
#ifndef OWT_LAZY
#define OWT_LAZY(library, function) inline ::owt::LazyFunction<decltype(::function)> function(library, #function);
#endif
// The file name with a version: libcudnn.so.9.
#define OWT_LIBRARY_FILE(name, version) OWT_LIBRARY_FILE_(name, version)
#define OWT_LIBRARY_FILE_(name, version) name ".so." #version
