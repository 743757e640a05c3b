// The sum over ranks as what a norm adds to the residual stream: a Block of register_norm.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/register_norm.cuh"
#include "halley/cuda/rank_sum/exchange_call.cuh"

namespace halley::cuda {

/// x: [M, K] row-major, this rank's; sent as [M, K] without gaps. Vectors are those of the norm: of
/// 4 elements, so that the norm's sums have their order.
template <typename X, int kRanksMax>
struct SummedBlock {
  const X* x;
  ExchangeArgs exchange;

  class Row {
   public:
    __device__ Row(const X* x, uint32_t offset, const ExchangeArgs& exchange)
        : x_(x), offset_(offset), num_ranks_(exchange.num_ranks), call_(exchange) {
#pragma unroll
      for (int i = 0; i < kRegisterNormVec4s; ++i) offsets_[i] = Call::kNone;
    }

    __device__ void load(int i, int column) {
      sums_[i] = Words<2>::load(x_ + column);
      offsets_[i] = offset_ + static_cast<uint32_t>(column * sizeof(X));
    }
    __device__ void complete() {
#pragma unroll
      for (int i = 0; i < kRegisterNormVec4s; ++i) {
        if (offsets_[i] == Call::kNone) continue;
        sums_[i] = sums_[i].without_sentinel();
        call_.send(sums_[i], offsets_[i]);
      }
      call_.finish_send();
      Words<2> of_ranks[kRegisterNormVec4s][kRanksMax];
      call_.receive(offsets_, sums_, of_ranks);
      call_.finish();
#pragma unroll
      for (int i = 0; i < kRegisterNormVec4s; ++i) {
        sums_[i] = sum_of_ranks<X>(of_ranks[i], num_ranks_);
      }
    }
    __device__ float4 vec4(int i) const {
      const float2 low = pair_to_f32<X>(sums_[i].word[0]), high = pair_to_f32<X>(sums_[i].word[1]);
      return {low.x, low.y, high.x, high.y};
    }

   private:
    using Call = ExchangeCall<kRanksMax>;

    const X* x_;
    uint32_t offset_;
    int num_ranks_;
    Call call_;
    uint32_t offsets_[kRegisterNormVec4s];
    Words<2> sums_[kRegisterNormVec4s];  // this rank's vectors before complete()
  };

  __device__ void launch_dependents() const { cuda::launch_dependents(exchange); }
  __device__ Row row(int64_t m, const NormRowShape& shape) const {
    return Row(x + m * shape.block_stride, static_cast<uint32_t>(m * shape.num_columns * sizeof(X)),
               exchange);
  }
};

}  // namespace halley::cuda
