#include "halley/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace halley {

void check_failed(const char* expression, const std::string& values, const char* file, int line) {
  std::fprintf(stderr, "halley: internal error at %s:%d: %s is false%s%s. Please report this.\n",
               file, line, expression, values.empty() ? "" : "; values: ", values.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace halley
