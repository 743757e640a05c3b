// Communication between the ranks of a model: collective operations over buffers in host or device
// memory, with a limit for how long a rank waits for the others.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "halley/core/dtype.h"
#include "halley/parallel/base/reduce_ranks.h"

struct CUstream_st;

namespace halley {

/// A cudaStream_t for communicators of device memory; null for those of host memory.
using CommStream = CUstream_st*;

/// Elements in the memory that the communicator works on: the host's, or that of its GPU.
struct CommBuffer {
  void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::kF32;
};

/// One rank's end. All ranks call the same operations with the same sizes in the same order; send()
/// and receive() concern their two ranks alone. One thread at a time uses one rank's end, but any
/// thread may call abort_all() and, of host memory, check_async().
///
/// Communicators of host memory block until their part is done. Those of device memory queue their
/// work on `stream`, also while the stream is captured into a graph; the host waits for that work
/// by wait_until(), never by a call that cannot end when another rank has died.
///
/// An operation throws DeviceError that names the operation, this rank and, where known, the ranks
/// that did not take part within the timeout; and it throws the reason of abort_all(). After
/// either, all later operations of all ranks throw.
class Communicator {
 public:
  static constexpr std::chrono::milliseconds kDefaultTimeout{60'000};

  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int num_ranks() const { return num_ranks_; }

  /// data[i] = sum over all ranks, for f32, f16 and bf16. Numerics of host memory: f32 in ascending
  /// order of ranks, rounded once; so every rank has the same bits.
  void all_reduce_sum(CommBuffer buffer, CommStream stream = nullptr);
  /// data[i] = maximum over all ranks, for f32 without NaN.
  void all_reduce_max(CommBuffer buffer, CommStream stream = nullptr);
  /// all: [num_ranks, num_bytes]. `own` may be this rank's row of `all`.
  void all_gather(const void* own, size_t num_bytes, void* all, CommStream stream = nullptr);
  /// Copies `data` of rank `root` to `data` of all others.
  void broadcast(void* data, size_t num_bytes, int root, CommStream stream = nullptr);
  /// broadcast() for idle times, of host memory alone: the others wait for `root` without a limit,
  /// with little load on their cores, until it comes, a rank aborts or the root's process ends.
  void broadcast_idle(void* data, size_t num_bytes, int root);
  /// May wait until rank `to` receives. Messages between two ranks keep their order, and a receiver
  /// names the size that was sent.
  void send(const void* data, size_t num_bytes, int to, CommStream stream = nullptr);
  void receive(void* data, size_t num_bytes, int from, CommStream stream = nullptr);

  /// All ranks call it: a communicator of those with the same color (>= 0), in the order of their
  /// ranks here. An abort of either is one of both.
  std::unique_ptr<Communicator> split(int color);

  /// Waits until `is_done`, which asks for the state of queued work (CudaEvent::is_reached()).
  /// Throws as check_async() does, and where it is not done within the timeout, which aborts.
  void wait_until(const std::function<bool()>& is_done);
  /// Throws DeviceError if a rank has aborted or an operation on a stream has failed. Cheap.
  virtual void check_async() = 0;

  /// Ends the operations of all ranks, pending and later: they throw DeviceError with the first
  /// reason that was given. MPI ends all processes of the job, this one too.
  virtual void abort_all(const std::string& reason) noexcept = 0;

 protected:
  /// How long a rank waits for the others.
  enum class Wait : uint8_t { kTimeout, kUnlimited };

  Communicator(int rank, int num_ranks, std::chrono::milliseconds timeout);
  std::chrono::milliseconds timeout() const { return timeout_; }
  /// The error's text: `operation` of this rank has waited for the ranks `missing`, if they are
  /// known.
  std::string timeout_message(std::string_view operation, std::span<const int> missing) const;

 private:
  // The operations with checked arguments, of at least one byte. There are at least two ranks but
  // for do_all_gather() and do_split().
  virtual void do_all_reduce(CommBuffer buffer, Reduction reduction, CommStream stream) = 0;
  virtual void do_all_gather(const void* own, size_t num_bytes, void* all, CommStream stream) = 0;
  virtual void do_broadcast(void* data, size_t num_bytes, int root, Wait wait,
                            CommStream stream) = 0;
  virtual void do_send(const void* data, size_t num_bytes, int to, CommStream stream) = 0;
  virtual void do_receive(void* data, size_t num_bytes, int from, CommStream stream) = 0;
  virtual std::unique_ptr<Communicator> do_split(int color) = 0;

  const int rank_, num_ranks_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace halley
