#include "halley/parallel/nccl/nccl_library.h"

#include <cstdlib>
#include <string>
#include <type_traits>

#include <gmock/gmock.h>

#include "halley/base/env.h"
#include "halley/base/error.h"

#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

namespace halley::nccl {
namespace {

using testing::AllOf;
using testing::HasSubstr;

#ifdef NCCL_MAJOR
// nccl_library.h declares what NCCL's own header does.
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) &&
              alignof(UniqueId) == alignof(ncclUniqueId));
static_assert(sizeof(Result) == sizeof(ncclResult_t) && kSuccess == int{ncclSuccess} &&
              kInProgress == int{ncclInProgress});
static_assert(sizeof(DataType) == sizeof(ncclDataType_t) && kUint8 == int{ncclUint8} &&
              kFloat16 == int{ncclFloat16} && kFloat32 == int{ncclFloat32} &&
              kBfloat16 == int{ncclBfloat16});
#if NCCL_MAJOR > 2 || NCCL_MINOR >= 27
static_assert(std::is_same_v<Window, ncclWindow_t> && kSymmetricWindow == NCCL_WIN_COLL_SYMMETRIC);
#endif
static_assert(sizeof(ReduceOp) == sizeof(ncclRedOp_t) && kSum == int{ncclSum} &&
              kMax == int{ncclMax});
#endif

std::string error_of(const char* file) {
  try {
    open_library(file);
  } catch (const DeviceError& error) {
    return error.what();
  }
  return {};
}

TEST(NcclLibrary, SaysHowToInstallWhatIsMissing) {
  EXPECT_THAT(error_of("libhalley_no_nccl.so"),
              AllOf(HasSubstr("NCCL: expected libhalley_no_nccl.so of version 2.18 or later: "),
                    HasSubstr("cannot open shared object file"), HasSubstr("Install NCCL"),
                    HasSubstr("use one GPU")));
}

TEST(NcclLibrary, RejectsALibraryWithoutItsFunctions) {
  EXPECT_THAT(error_of("libm.so.6"), HasSubstr("it has no ncclGetVersion"));
}

TEST(NcclLibrary, NoNvlinkMulticastUnlessTheUserAsksForIt) {
  unsetenv("NCCL_NVLS_ENABLE");
  error_of("libhalley_no_nccl.so");
  EXPECT_EQ(env_string("NCCL_NVLS_ENABLE"), "0");
  setenv("NCCL_NVLS_ENABLE", "1", 1);
  error_of("libhalley_no_nccl.so");
  EXPECT_EQ(env_string("NCCL_NVLS_ENABLE"), "1");
}

TEST(NcclLibrary, OpensWhereItIsInstalled) {
  const std::string error = error_of("libnccl.so.2");
  if (!error.empty()) GTEST_SKIP() << error;
  int version = 0;
  EXPECT_EQ(open_library().get_version(&version), kSuccess);
  EXPECT_GE(version, 21800);
}

}  // namespace
}  // namespace halley::nccl
