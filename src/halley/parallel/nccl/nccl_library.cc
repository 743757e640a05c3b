#include "halley/parallel/nccl/nccl_library.h"

#include <string>

#include <dlfcn.h>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::nccl {
namespace {

constexpr int kVersionMin = 21800;  // the first with ncclCommSplit

class Library {
 public:
  explicit Library(const char* file) : file_(file) {
    std::string missing;
    for (const char* folder : {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/"}) {
      handle_ = dlopen((std::string(folder) + file).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) return;
      if (missing.empty()) missing = dlerror();
    }
    reject(missing);
  }

  template <typename Function>
  void take(const char* name, Function*& function) const {
    take_if_there(name, function);
    if (function == nullptr) reject(str("it has no ", name));
  }

  template <typename Function>
  void take_if_there(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(dlsym(handle_, name));
  }

  [[noreturn]] void reject(const std::string& reason) const {
    throw DeviceError(str("NCCL: expected ", file_, " of version 2.18 or later: ", reason,
                          ". Install NCCL (libnccl2, or the Python package nvidia-nccl-cu13), set "
                          "LD_LIBRARY_PATH to its folder, or use one GPU."));
  }

 private:
  const char* file_;
  void* handle_ = nullptr;
};

}  // namespace

Api open_library(const char* file) {
  set_env_if_absent("NCCL_NVLS_ENABLE", "0");
  set_env_if_absent("NCCL_RUNTIME_CONNECT", "0");
  const Library library(file);
  Api api;
  library.take("ncclGetVersion", api.get_version);
  library.take("ncclGetUniqueId", api.get_unique_id);
  library.take("ncclCommInitRank", api.comm_init_rank);
  library.take("ncclCommSplit", api.comm_split);
  library.take("ncclCommDestroy", api.comm_destroy);
  library.take("ncclCommAbort", api.comm_abort);
  library.take("ncclCommGetAsyncError", api.comm_get_async_error);
  library.take("ncclGetErrorString", api.get_error_string);
  library.take("ncclGetLastError", api.get_last_error);
  library.take("ncclAllReduce", api.all_reduce);
  library.take("ncclAllGather", api.all_gather);
  library.take("ncclBroadcast", api.broadcast);
  library.take("ncclSend", api.send);
  library.take("ncclRecv", api.receive);
  library.take_if_there("ncclMemAlloc", api.mem_alloc);
  library.take_if_there("ncclMemFree", api.mem_free);
  library.take_if_there("ncclCommWindowRegister", api.comm_window_register);
  library.take_if_there("ncclCommWindowDeregister", api.comm_window_deregister);
  int version = 0;
  if (api.get_version(&version) != kSuccess || version < kVersionMin) {
    library.reject(
        str("it has version ", version / 10000, ".", version / 100 % 100, ".", version % 100));
  }
  return api;
}

}  // namespace halley::nccl
