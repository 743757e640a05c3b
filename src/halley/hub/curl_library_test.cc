#include "halley/hub/curl_library.h"

#include <gmock/gmock.h>

#include "halley/base/error.h"

namespace halley::hub {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(CurlLibrary, SaysHowToInstallWhatIsMissing) {
  EXPECT_THAT(
      [] {
        open_curl({"libhalley_no_curl.so", "libhalley_no_other.so"});
      },
      ThrowsMessage<DeviceError>(
          AllOf(HasSubstr("libcurl: expected libhalley_no_curl.so of version 7.62 or later"),
                HasSubstr("cannot open shared object file"),
                HasSubstr("Debian: libcurl4 and ca-certificates"))));
}

TEST(CurlLibrary, RejectsALibraryWithoutItsFunctions) {
  EXPECT_THAT([] { open_curl({"libm.so.6"}); },
              ThrowsMessage<DeviceError>(HasSubstr("it has no curl_global_init")));
}

TEST(CurlLibrary, TakesTheFirstThatIsThere) {
  EXPECT_NE(open_curl({"libhalley_no_curl.so", "libcurl.so.4"}).easy_perform, nullptr);
}

}  // namespace
}  // namespace halley::hub
