#include "halley/cuda/gemm/cublaslt_library.h"

#include <string>

#include <dlfcn.h>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::cuda {
namespace {

/// Never closed: its functions are kept for the life of the program.
class Library {
 public:
  Library() {
    const std::string name = str("libcublasLt.so.", CUBLAS_VER_MAJOR);
    for (const char* folder : {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/"}) {
      handle_ = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) break;
      if (rejection_.empty()) rejection_ = dlerror();
    }
    if (handle_ == nullptr) return;
    rejection_.clear();
    take("cublasLtCreate", api_.create);
    take("cublasLtDestroy", api_.destroy);
    take("cublasLtGetStatusName", api_.status_name);
    take("cublasLtGetStatusString", api_.status_string);
    take("cublasLtMatmul", api_.matmul);
    take("cublasLtMatmulAlgoCheck", api_.check_algo);
    take("cublasLtMatmulAlgoConfigGetAttribute", api_.get_algo_attribute);
    take("cublasLtMatmulAlgoGetHeuristic", api_.get_heuristic);
    take("cublasLtMatmulDescInit_internal", api_.init_desc);
    take("cublasLtMatmulDescSetAttribute", api_.set_desc_attribute);
    take("cublasLtMatmulPreferenceInit_internal", api_.init_preference);
    take("cublasLtMatmulPreferenceSetAttribute", api_.set_preference_attribute);
    take("cublasLtMatrixLayoutInit_internal", api_.init_layout);
  }

  const CublasLtApi& api() const {
    if (rejection_.empty()) return api_;
    throw DeviceError(str("cuBLASLt: expected libcublasLt.so.", CUBLAS_VER_MAJOR, ": ", rejection_,
                          ". Install cuBLAS ", CUBLAS_VER_MAJOR,
                          " (a part of the CUDA toolkit), set LD_LIBRARY_PATH to its folder, or "
                          "run on the CPU."));
  }

 private:
  template <typename Function>
  void take(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(handle_, name));
    if (function == nullptr) rejection_ = str("it has no ", name);
  }

  void* handle_ = nullptr;
  CublasLtApi api_;
  std::string rejection_;  // empty: all is there
};

}  // namespace

const CublasLtApi& cublaslt() {
  static const Library library;
  return library.api();
}

}  // namespace halley::cuda
