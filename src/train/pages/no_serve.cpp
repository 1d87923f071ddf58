#include "src/core/check.h"
#include "src/train/pages/serve.h"

namespace owt {

void serve_runs(const std::vector<std::string>&, const ServeOptions&, const std::function<void(int)>&,
                const std::function<bool()>&) {
  fail(
      "this program was built without owt watch: it needs cpp-httplib (Debian: libcpp-httplib-dev); owt report writes "
      "the same page as a file");
}

}  // namespace owt
