#include "halley/parallel/mpi/mpi_library.h"

#include <gmock/gmock.h>

#include "halley/base/error.h"

namespace halley {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string error_of(const std::string& file) {
  try {
    open_mpi_library(file);
  } catch (const DeviceError& error) {
    return error.what();
  }
  return {};
}

TEST(MpiLibrary, SaysHowToInstallWhatIsMissing) {
  EXPECT_THAT(error_of("libhalley_no_mpi.so"),
              AllOf(HasSubstr("MPI: expected libhalley_no_mpi.so: "),
                    HasSubstr("cannot open shared object file"), HasSubstr("openmpi-bin"),
                    HasSubstr("HALLEY_MPI=ON")));
}

TEST(MpiLibrary, RejectsALibraryOfAnotherVersion) {
  EXPECT_THAT(error_of("libm.so.6"), HasSubstr("halley_mpi_api_1"));
}

}  // namespace
}  // namespace halley
