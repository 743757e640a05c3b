// Times of W4Ax products, a fifth of whose activations have 8 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "halley/cuda/gemm/time_products.h"
#include "halley/cuda/hopper_tile/tile_plan.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_arena.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"

namespace halley::cuda {

/// Copies of one weight of random codes that fill the L2 cache three times, with inputs, one block
/// of five in 8 bits, and outputs.
class TimedW4axWeight {
 public:
  /// M: the most rows.
  TimedW4axWeight(const CudaContext& context, const ProductShape& largest);

  ProductShape shape(int64_t M) const { return {.M = M, .N = shape_.N, .K = shape_.K}; }
  size_t num_copies() const { return weights_.size(); }
  const W4axWeight& copy(size_t index) const { return weights_[index]; }
  W4axOperands operands(int64_t M) const;
  Matrix outputs(int64_t M) const;
  /// Queues a GEMM with one of the copies, as models run it.
  std::function<void(size_t copy)> product(const CudaContext& context, const TilePlan& plan,
                                           int64_t M) const;
  /// Of one copy.
  double weight_bytes() const { return static_cast<double>(weights_[0].num_bytes()); }
  double floor_microseconds(const GpuRates& rates, int64_t M) const;

 private:
  void fill_inputs();

  ProductShape shape_;
  int64_t x_stride_, x_scales_pitch_;
  DeviceBuffer x_, x_scales_, y_;
  std::vector<W4axWeight> weights_;
};

/// "w4ax"; a kernel is a plan. As time_gemm(). Takes the largest plan's workspace.
std::vector<GemmTime> time_w4ax_gemm(const CudaContext& context, const TimeGemmOptions& options);

/// The fastest plan in tiles for each number of rows that runs in tiles, of launches that start
/// early; measured as time_w4ax_gemm() does.
std::vector<TunedPlan> tune_w4ax_gemm(const CudaContext& context, const TunedGemm& gemm,
                                      const std::vector<int64_t>& rows, const OnTunedPlan& on_plan);

}  // namespace halley::cuda
