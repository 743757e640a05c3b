// Exchanges among the ranks of tensor parallelism within a step on GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "halley/core/dtype.h"
#include "halley/core/matrix.h"
#include "halley/cuda/ops/join_columns.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/rank_sum/peer_exchange.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/cuda_device.h"
#include "halley/cuda/runtime/cuda_stream.h"
#include "halley/cuda/weights/linear_input.h"
#include "halley/parallel/base/communicator.h"

namespace halley::cuda {

/// One rank's end, of one GPU. Work is queued on streams; every rank queues the same in the same
/// order.
class DeviceRanks {
 public:
  /// All ranks of `host`, which outlives this object, make it at the same time, each with the GPU
  /// that it has chosen: by NCCL, or by way of the host where several have the same one, which only
  /// tests do. Throws DeviceError as make_nccl_communicator().
  DeviceRanks(Communicator& host, const CudaDeviceInfo& device);

  int rank() const { return device_->rank(); }
  int num_ranks() const { return device_->num_ranks(); }
  bool is_capturable() const { return !is_shared_; }

  /// rows[m, k] = the sum over all ranks. [M, K] f32, f16 or bf16; what lies between rows changes.
  void sum(const CudaContext& context, Matrix rows);

  /// hidden += the sum of `block` over all ranks, then y = norm(hidden); in one kernel where GPUs
  /// write into each other's memory. Shapes as add_norm_rows(); `block` is undefined afterwards.
  void sum_add_norm_rows(const CudaContext& context, const NormParams& params, Matrix block,
                         Matrix hidden, const LinearInput& y);

  /// Copies this rank's columns [M, K] to where gather_columns() takes them from.
  void place_columns(const CudaContext& context, ConstMatrix own, std::byte* parts,
                     int64_t row_stride) const;
  /// Columns of all ranks next to each other, which are in `parts` [num_ranks, M, row_stride]: this
  /// rank's before, all of them behind. all [M, shares.num_columns()] f32, f16 or bf16.
  void gather_columns(const CudaContext& context, const ColumnShares& shares, std::byte* parts,
                      int64_t row_stride, Matrix all);

  /// Tells all ranks, on the host, how several matrices are divided: `begins` has the first column
  /// of this rank's part of each, `num_columns` how many all ranks have.
  std::vector<ColumnShares> exchange_shares(std::span<const int64_t> begins,
                                            std::span<const int64_t> num_columns);

  /// Runs what may make CUDA wait for a GPU, loads of kernels, allocations and frees, while no
  /// rank's work waits for another rank's. All ranks call it at the same point of their work. Else
  /// it might wait for a kernel of this process that waits for what another thread cannot launch
  /// meanwhile.
  void run_alone(const CudaStream& stream, const std::function<void()>& run);

  /// Wait for work that may wait for other ranks. Throw DeviceError where one has died.
  void wait_for(const CudaEvent& event) { wait_until_reached(event); }
  void wait_for(const CudaStream& stream);

 private:
  bool takes_exchange(ConstMatrix rows) const {
    return exchange_ != nullptr && exchange_->fits(rows);
  }
  void wait_until_reached(const CudaEvent& event);
  void meet();

  Communicator& host_;
  const bool is_shared_;  // a GPU, by several ranks
  const std::unique_ptr<Communicator> device_;
  std::unique_ptr<PeerExchange> exchange_;  // of small M; null: GPUs do not reach each other
};

}  // namespace halley::cuda
