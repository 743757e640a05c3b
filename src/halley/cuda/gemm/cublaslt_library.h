// cuBLASLt, opened while the program runs: the program starts on machines without it, and does not
// carry its 540 MB.
#pragma once

#include <cublasLt.h>

namespace halley::cuda {

/// What is used of cublasLt.h.
struct CublasLtApi {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetStatusName) status_name = nullptr;
  decltype(&cublasLtGetStatusString) status_string = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) check_algo = nullptr;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) get_algo_attribute = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmulDescInit_internal) init_desc = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_desc_attribute = nullptr;
  decltype(&cublasLtMatmulPreferenceInit_internal) init_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference_attribute = nullptr;
  decltype(&cublasLtMatrixLayoutInit_internal) init_layout = nullptr;
};

/// Opens the library at the first call: where the dynamic linker looks (LD_LIBRARY_PATH,
/// ld.so.conf), then in /usr/local/cuda. Any thread. Throws DeviceError that says what is missing.
const CublasLtApi& cublaslt();

}  // namespace halley::cuda
