// libhalley_mpi.so: the table of mpi_api.h on MPI.
#include <algorithm>
#include <cstdio>
#include <vector>

#include <mpi.h>

#include "halley/parallel/mpi/mpi_api.h"

#define HALLEY_MPI_TRY(call)                                \
  do {                                                      \
    if (const int status = (call); status != MPI_SUCCESS) { \
      return status;                                        \
    }                                                       \
  } while (false)

struct HalleyMpiComm {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, num_ranks = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  // The operation in progress uses them: sizes and offsets of each rank's part.
  std::vector<int> sizes, offsets, own_sizes, own_offsets;
};

namespace {

int open_comm(MPI_Comm comm, HalleyMpiComm** result) {
  auto* opened = new HalleyMpiComm;
  opened->comm = comm;
  *result = opened;
  HALLEY_MPI_TRY(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  HALLEY_MPI_TRY(MPI_Comm_rank(comm, &opened->rank));
  return MPI_Comm_size(comm, &opened->num_ranks);
}

int initialize(HalleyMpiComm** world) {
  int provided = MPI_THREAD_SINGLE;
  HALLEY_MPI_TRY(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided));
  if (provided < MPI_THREAD_SERIALIZED) return MPI_ERR_UNSUPPORTED_OPERATION;
  HALLEY_MPI_TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  return open_comm(MPI_COMM_WORLD, world);
}

int rank_of(const HalleyMpiComm* comm) { return comm->rank; }
int num_ranks_of(const HalleyMpiComm* comm) { return comm->num_ranks; }

int test(HalleyMpiComm* comm, int* is_done) {
  return MPI_Test(&comm->request, is_done, MPI_STATUS_IGNORE);
}

int start_barrier(HalleyMpiComm* comm) { return MPI_Ibarrier(comm->comm, &comm->request); }

int start_all_gather(HalleyMpiComm* comm, const void* own, size_t num_bytes, void* all,
                     size_t stride_bytes) {
  const int size = static_cast<int>(num_bytes);
  if (own == nullptr) own = MPI_IN_PLACE;
  if (stride_bytes == num_bytes) {
    return MPI_Iallgather(own, size, MPI_BYTE, all, size, MPI_BYTE, comm->comm, &comm->request);
  }
  MPI_Datatype row, strided;
  HALLEY_MPI_TRY(MPI_Type_contiguous(size, MPI_BYTE, &row));
  HALLEY_MPI_TRY(MPI_Type_create_resized(row, 0, static_cast<MPI_Aint>(stride_bytes), &strided));
  HALLEY_MPI_TRY(MPI_Type_commit(&strided));
  HALLEY_MPI_TRY(MPI_Iallgather(own, size, MPI_BYTE, all, 1, strided, comm->comm, &comm->request));
  // Marks them: they live until the operation is done.
  HALLEY_MPI_TRY(MPI_Type_free(&strided));
  return MPI_Type_free(&row);
}

// Fills sizes and offsets with the parts of `num_bytes`.
void set_parts(HalleyMpiComm* comm, size_t num_bytes, size_t part_bytes) {
  comm->sizes.clear();
  comm->offsets.clear();
  for (int i = 0; i < comm->num_ranks; ++i) {
    const size_t begin = std::min(num_bytes, part_bytes * static_cast<size_t>(i));
    comm->offsets.push_back(static_cast<int>(begin));
    comm->sizes.push_back(static_cast<int>(std::min(part_bytes, num_bytes - begin)));
  }
}

int start_exchange_parts(HalleyMpiComm* comm, const void* data, size_t num_bytes, size_t part_bytes,
                         void* parts) {
  set_parts(comm, num_bytes, part_bytes);
  const int own_size = comm->sizes[static_cast<size_t>(comm->rank)];
  comm->own_sizes.assign(comm->sizes.size(), own_size);
  comm->own_offsets.clear();
  for (int i = 0; i < comm->num_ranks; ++i) comm->own_offsets.push_back(i * own_size);
  return MPI_Ialltoallv(data, comm->sizes.data(), comm->offsets.data(), MPI_BYTE, parts,
                        comm->own_sizes.data(), comm->own_offsets.data(), MPI_BYTE, comm->comm,
                        &comm->request);
}

int start_gather_parts(HalleyMpiComm* comm, void* data, size_t num_bytes, size_t part_bytes) {
  set_parts(comm, num_bytes, part_bytes);
  return MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, comm->sizes.data(),
                         comm->offsets.data(), MPI_BYTE, comm->comm, &comm->request);
}

int start_broadcast(HalleyMpiComm* comm, void* data, size_t num_bytes, int root) {
  return MPI_Ibcast(data, static_cast<int>(num_bytes), MPI_BYTE, root, comm->comm, &comm->request);
}

int start_send(HalleyMpiComm* comm, const void* data, size_t num_bytes, int to) {
  return MPI_Isend(data, static_cast<int>(num_bytes), MPI_BYTE, to, 0, comm->comm, &comm->request);
}

int start_receive(HalleyMpiComm* comm, void* data, size_t num_bytes, int from) {
  return MPI_Irecv(data, static_cast<int>(num_bytes), MPI_BYTE, from, 0, comm->comm,
                   &comm->request);
}

int split(HalleyMpiComm* comm, int color, HalleyMpiComm** part) {
  MPI_Comm opened = MPI_COMM_NULL;
  HALLEY_MPI_TRY(MPI_Comm_split(comm->comm, color, comm->rank, &opened));
  return open_comm(opened, part);
}

int finalize() { return MPI_Finalize(); }

void abort_job(int exit_status) { MPI_Abort(MPI_COMM_WORLD, exit_status); }

void describe(int status, char* text, size_t size) {
  char full[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(status, full, &length);
  std::snprintf(text, size, "%s", full);
}

constexpr HalleyMpiApi kApi = {
    .initialize = initialize,
    .rank = rank_of,
    .num_ranks = num_ranks_of,
    .test = test,
    .start_barrier = start_barrier,
    .start_all_gather = start_all_gather,
    .start_exchange_parts = start_exchange_parts,
    .start_gather_parts = start_gather_parts,
    .start_broadcast = start_broadcast,
    .start_send = start_send,
    .start_receive = start_receive,
    .split = split,
    .finalize = finalize,
    .abort_job = abort_job,
    .describe = describe,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const HalleyMpiApi* HALLEY_MPI_API_FUNCTION() {
  return &kApi;
}
