// NCCL, opened while the program runs: it is no part of the CUDA toolkit, and one GPU needs none.
#pragma once

#include <cstddef>

#include "halley/parallel/base/communicator.h"

struct ncclComm;
struct ncclWindow_vidmem;

namespace halley::nccl {

// The part of nccl.h that is used. Its binary interface is the same in all versions 2.18 and later;
// a test compares it with the header where that is installed.
using Comm = ncclComm*;
using Window = ncclWindow_vidmem*;
struct UniqueId {
  char bytes[128];
};
enum Result : int { kSuccess = 0, kInProgress = 7 };
enum DataType : int { kUint8 = 1, kFloat16 = 6, kFloat32 = 7, kBfloat16 = 9 };
enum ReduceOp : int { kSum = 0, kMax = 2 };
enum WindowFlags : int { kSymmetricWindow = 1 };

struct Api {
  Result (*get_version)(int* version) = nullptr;
  Result (*get_unique_id)(UniqueId* id) = nullptr;
  Result (*comm_init_rank)(Comm* comm, int num_ranks, UniqueId id, int rank) = nullptr;
  /// The configuration may be null.
  Result (*comm_split)(Comm comm, int color, int key, Comm* part, void* config) = nullptr;
  Result (*comm_destroy)(Comm comm) = nullptr;
  Result (*comm_abort)(Comm comm) = nullptr;
  Result (*comm_get_async_error)(Comm comm, Result* error) = nullptr;
  const char* (*get_error_string)(Result result) = nullptr;
  /// More about the last error of this thread; `comm` is not used.
  const char* (*get_last_error)(Comm comm) = nullptr;
  Result (*all_reduce)(const void* from, void* to, size_t count, DataType type, ReduceOp op,
                       Comm comm, CommStream stream) = nullptr;
  Result (*all_gather)(const void* from, void* to, size_t count_per_rank, DataType type, Comm comm,
                       CommStream stream) = nullptr;
  Result (*broadcast)(const void* from, void* to, size_t count, DataType type, int root, Comm comm,
                      CommStream stream) = nullptr;
  Result (*send)(const void* from, size_t count, DataType type, int to, Comm comm,
                 CommStream stream) = nullptr;
  Result (*receive)(void* to, size_t count, DataType type, int from, Comm comm,
                    CommStream stream) = nullptr;

  // Registered memory. Null in versions before 2.27.
  Result (*mem_alloc)(void** memory, size_t num_bytes) = nullptr;
  Result (*mem_free)(void* memory) = nullptr;
  Result (*comm_window_register)(Comm comm, void* memory, size_t num_bytes, Window* window,
                                 int flags) = nullptr;
  Result (*comm_window_deregister)(Comm comm, Window window) = nullptr;
};

/// Opens `file` where the dynamic linker looks, then in /usr/local/cuda, and sets the variables of
/// the environment by which NCCL is told not to use NVLink multicast and to connect all ranks at
/// the start, unless the user has set them. Stays open. Throws DeviceError that says what is
/// missing.
Api open_library(const char* file = "libnccl.so.2");

}  // namespace halley::nccl
