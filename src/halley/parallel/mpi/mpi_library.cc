#include "halley/parallel/mpi/mpi_library.h"

#include <dlfcn.h>

#include "halley/base/error.h"
#include "halley/base/str.h"

#define HALLEY_QUOTE_DETAIL(name) #name
#define HALLEY_QUOTE(name) HALLEY_QUOTE_DETAIL(name)

namespace halley {

const HalleyMpiApi& open_mpi_library(const std::string& file) {
  // RTLD_GLOBAL: plugins of Open MPI look for its functions among those of the program.
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  using GetApi = const HalleyMpiApi*();
  void* get_api =
      handle == nullptr ? nullptr : dlsym(handle, HALLEY_QUOTE(HALLEY_MPI_API_FUNCTION));
  if (get_api == nullptr) {
    throw DeviceError(str("MPI: expected ", file, ": ", dlerror(),
                          ". Install Open MPI (Debian: openmpi-bin), and Halley built where "
                          "libopenmpi-dev is (CMake: HALLEY_MPI=ON)."));
  }
  return *reinterpret_cast<GetApi*>(get_api)();
}

}  // namespace halley
