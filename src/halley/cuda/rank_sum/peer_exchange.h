// Memory in which the GPUs of one process send each other rows.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/cuda/rank_sum/exchange_args.h"
#include "halley/cuda/runtime/cuda_device.h"
#include "halley/cuda/runtime/device_arena.h"
#include "halley/cuda/runtime/pinned_buffer.h"
#include "halley/parallel/base/communicator.h"

namespace halley::cuda {

/// Empty if the ranks can have a PeerExchange, else the reason, which is the same on all ranks: a
/// rank is another process, a GPU does not reach another one's memory, or there are too many. All
/// ranks of `host`, a communicator of host memory, call it. Ranks may share a GPU.
std::string why_no_peer_exchange(Communicator& host, const CudaDeviceInfo& device);

/// One rank's end, for sum_over_ranks() and what else is in rank_sum.h. All ranks make the same
/// calls in the same order, each on one stream or on streams that events order.
///
/// A rank that does not come within the timeout does not stop the GPUs: the calls that wait for it
/// end, with wrong sums, and so do all later ones, at once. check() throws then. A trap in the
/// kernel would also end the waiting, but would leave a process that can use none of its GPUs any
/// more, neither for an error's last requests nor for a new start.
class PeerExchange {
 public:
  /// Rows of 128 tokens by 8192 in 16 bits. Behind that NCCL's algorithms send less.
  static constexpr size_t kDefaultBytesMax = size_t{2} << 20;

  /// All ranks of `host` call it with the same arguments but for the device, the calling thread's
  /// current one, where why_no_peer_exchange() is empty. Takes 2 * num_ranks * rows_bytes_max bytes
  /// of device memory. `host` must outlive it. Throws DeviceError.
  PeerExchange(Communicator& host, const CudaDeviceInfo& device,
               size_t rows_bytes_max = kDefaultBytesMax,
               std::chrono::milliseconds timeout = Communicator::kDefaultTimeout);
  /// When this rank's stream is empty and the graphs with its calls will not be launched again.
  /// Other ranks may still work: memory that they write into lasts as long as any of them.
  ~PeerExchange();
  PeerExchange(const PeerExchange&) = delete;
  PeerExchange& operator=(const PeerExchange&) = delete;

  /// Whether these rows can be summed: f16 or bf16, at most rows_bytes_max without the gaps between
  /// rows, columns a multiple of 8, and rows that begin at multiples of 16 bytes. Else the sum is
  /// NCCL's.
  bool fits(ConstMatrix rows) const;

  /// Throws DeviceError where a call has failed, which aborts `host`, and where `host` is aborted,
  /// which ends the calls that wait. Cheap; for the loop that waits for a stream
  /// (Communicator::wait_until()).
  void check();

  int num_ranks() const { return args_.num_ranks; }
  /// CTAs of a call, up to 1024 threads each, that are resident together with those of all ranks on
  /// this GPU.
  int num_ctas_max() const { return num_ctas_max_; }
  const ExchangeArgs& args() const { return args_; }

 private:
  ExchangeSignals& signals() const;
  void cancel() noexcept;

  Communicator& host_;
  const std::chrono::milliseconds timeout_;
  const size_t rows_bytes_max_;
  DeviceBuffer state_;
  PinnedBuffer signals_;
  std::vector<std::shared_ptr<DeviceBuffer>> memory_;  // of all ranks
  ExchangeArgs args_ = {};
  int num_ctas_max_ = 0;
};

}  // namespace halley::cuda
