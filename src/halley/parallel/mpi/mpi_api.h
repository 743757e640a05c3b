// The functions of libhalley_mpi.so, the only code that is linked with MPI: the program opens it
// while it runs, and so starts on machines without MPI and with either of its implementations.
#pragma once

#include <cstddef>

extern "C" {

/// A communicator of MPI with at most one operation in progress.
struct HalleyMpiComm;

/// Every int that is returned is MPI's status, and 0 is success. The functions named start_ begin
/// an operation; its buffers belong to it until test() says that it is done. Sizes of one operation
/// add up to less than 2 GiB. One thread at a time.
struct HalleyMpiApi {
  /// Starts MPI, once a process. `world`: all processes of the job; lives until the process ends.
  int (*initialize)(HalleyMpiComm** world);
  int (*rank)(const HalleyMpiComm* comm);
  int (*num_ranks)(const HalleyMpiComm* comm);

  int (*test)(HalleyMpiComm* comm, int* is_done);
  int (*start_barrier)(HalleyMpiComm* comm);
  /// Rank r's row of `num_bytes` comes to all + r * stride_bytes. A null `own` is already there.
  int (*start_all_gather)(HalleyMpiComm* comm, const void* own, size_t num_bytes, void* all,
                          size_t stride_bytes);
  /// `data` has one part a rank, of `part_bytes` each but for the last ones: they end at
  /// `num_bytes`. This rank's part of every rank comes to `parts`, one behind the other.
  int (*start_exchange_parts)(HalleyMpiComm* comm, const void* data, size_t num_bytes,
                              size_t part_bytes, void* parts);
  /// Every rank's own part of `data` comes to all others.
  int (*start_gather_parts)(HalleyMpiComm* comm, void* data, size_t num_bytes, size_t part_bytes);
  int (*start_broadcast)(HalleyMpiComm* comm, void* data, size_t num_bytes, int root);
  int (*start_send)(HalleyMpiComm* comm, const void* data, size_t num_bytes, int to);
  int (*start_receive)(HalleyMpiComm* comm, void* data, size_t num_bytes, int from);

  /// Blocks until all ranks of `comm` have called it. `part` lives until the process ends.
  int (*split)(HalleyMpiComm* comm, int color, HalleyMpiComm** part);
  /// Blocks until all processes of the job have called it.
  int (*finalize)();
  /// Ends all processes of the job.
  void (*abort_job)(int exit_status);
  /// Writes the text of a status, cut to `size` bytes with its final zero.
  void (*describe)(int status, char* text, size_t size);
};

/// The name of the function that returns the table.
#define HALLEY_MPI_API_FUNCTION halley_mpi_api_1

}  // extern "C"
