#include "src/system/lazy_library.h"
#include "tests/support/message_of.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace owt::lazy_library_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(LazyLibrary, AFunctionIsThatOfTheLibrary) {
  LazyLibrary library("libm.so.6", "libm", "libc6");
  LazyFunction<double(double, double)> power(library, "pow");
  EXPECT_EQ(power(2, 10), 1024);
  EXPECT_EQ(power(3, 2), 9) << "again, by the address that is known now";
}

TEST(LazyLibrary, AMissingLibraryIsAnErrorWithItsCureAtTheFirstCall) {
  LazyLibrary library("libowt_missing.so.9", "cuDXX", "a package");
  LazyFunction<int()> function(library, "start");
  for (int time = 0; time < 2; ++time)
    EXPECT_THAT(message_of([&] { function(); }), AllOf(HasSubstr("cuDXX cannot be loaded (libowt_missing.so.9"),
                                                       HasSubstr("install a package"), HasSubstr("--device cpu")));
  LazyLibrary optional("libowt_missing.so.9", "cuDXX", "a package", "do it by hand");
  EXPECT_THAT(message_of([&] { optional.address_of("start"); }),
              AllOf(HasSubstr("LD_LIBRARY_PATH, or do it by hand"), Not(HasSubstr("--device"))));
}

TEST(LazyLibrary, AMissingFunctionIsAnErrorThatNamesIt) {
  LazyLibrary library("libm.so.6", "libm", "libc6");
  LazyFunction<int()> function(library, "no_such_function");
  EXPECT_THAT(message_of([&] { function(); }), HasSubstr("libm.so.6 has no function no_such_function"));
}

}  // namespace
}  // namespace owt::lazy_library_test
