#include "halley/cuda/ablation/time_ablation.h"

#include <algorithm>
#include <random>

#include <cuda_runtime_api.h>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/ablation/ablation.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/device_arena.h"

namespace halley::cuda {
namespace {

/// The pattern again and again.
void fill(const DeviceBuffer& buffer, const void* pattern, size_t pattern_bytes) {
  for (size_t begin = 0; begin < buffer.num_bytes(); begin += pattern_bytes) {
    check_cuda(
        cudaMemcpy(buffer.data() + begin, pattern,
                   std::min(pattern_bytes, buffer.num_bytes() - begin), cudaMemcpyHostToDevice),
        "copy of numbers to time");
  }
}

void fill_with(const DeviceBuffer& buffer, float value) {
  const std::vector<float> values(buffer.num_bytes() / sizeof(float), value);
  fill(buffer, values.data(), values.size() * sizeof(float));
}

/// Copies of one random weight, with inputs and outputs. Random bytes are codes in any order.
class TimedWeight {
 public:
  /// M: the most rows.
  TimedWeight(const CudaContext& context, const ProductShape& largest)
      : context_(context),
        shape_(largest),
        x_stride_(round_up<int64_t>(largest.K, 16)),  // rows at multiples of 16 bytes
        x_scales_pitch_(round_up(largest.M, kW4axTokenPadding)),
        x_(static_cast<size_t>(largest.M * x_stride_), "inputs to time"),
        x_scales_(
            static_cast<size_t>(ceil_div<int64_t>(largest.K, kBlockInputs) * x_scales_pitch_) *
                sizeof(float),
            "scales to time"),
        y_(static_cast<size_t>(largest.M * largest.N) * 2, "outputs to time") {
    fill_inputs();
    fill_with(x_scales_, 0x1p-6f);
    std::mt19937 random(7);
    std::vector<uint8_t> codes((size_t{4} << 20) + 4096);
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random());
    size_t num_copies = 2;
    for (size_t i = 0; i < num_copies; ++i) {
      weights_.emplace_back(context, largest.N, largest.K);
      context.stream.synchronize();  // it is zero
      const W4axWeight& weight = weights_.back();
      fill(weight.codes, codes.data(), codes.size());
      fill_with(weight.scales, 0x1p-6f);
      num_copies =
          std::max<size_t>(2, ceil_div(3 * context.device.l2_bytes, weight.codes.num_bytes()));
    }
    // Streams do not wait for copies beside them.
    check_cuda(cudaDeviceSynchronize(), "copies of numbers to time");
  }

  ProductShape shape(int64_t M) const { return {.M = M, .N = shape_.N, .K = shape_.K}; }

  double floor_microseconds(const GpuRates& rates, int64_t M) const {
    const auto rows = static_cast<double>(M), outputs = static_cast<double>(shape_.N);
    const auto inputs = static_cast<double>(shape_.K);
    const double num_bytes =
        static_cast<double>(weights_[0].num_bytes()) + rows * inputs + rows * outputs * 2;
    return 1e6 * std::max(num_bytes / rates.bytes_per_second,
                          2 * rows * outputs * inputs / rates.s8_per_second);
  }

  /// Microseconds.
  double time(const AblationVariant& variant, const TilePlan& plan, int64_t M) const {
    const W4axOperands operands = {.x = {x_.data(), DType::kI8, M, shape_.K, x_stride_},
                                   .x_scales = reinterpret_cast<const float*>(x_scales_.data()),
                                   .x_scales_pitch = x_scales_pitch_};
    const Matrix outputs = {y_.data(), DType::kF16, M, shape_.N, shape_.N};
    return time_products(context_, weights_.size(), [&](size_t copy) {
      ablated_w4ax_gemm(context_, variant, weights_[copy], operands, plan, outputs);
    });
  }

 private:
  static constexpr int64_t kBlockInputs = 128;

  /// What the tensor cores multiply sets their power: every fifth block has 8 bits.
  void fill_inputs() {
    constexpr int64_t kPatternRows = 61;
    std::mt19937 random(8);
    std::vector<int8_t> pattern(static_cast<size_t>(kPatternRows * x_stride_));
    for (size_t i = 0; i < pattern.size(); ++i) {
      const int64_t block = static_cast<int64_t>(i) % x_stride_ / kBlockInputs;
      const auto number = static_cast<int8_t>(random());
      pattern[i] = static_cast<int8_t>(block % 5 == 0 ? number : number >> 4);
    }
    fill(x_, pattern.data(), pattern.size());
  }

  const CudaContext& context_;
  ProductShape shape_;
  int64_t x_stride_, x_scales_pitch_;
  DeviceBuffer x_, x_scales_, y_;
  std::vector<W4axWeight> weights_;
};

struct TimedPlan {
  TilePlan plan = {};
  double microseconds = 0;
};

/// The fastest of those without shared tiles.
TimedPlan fastest_whole_plan(const TimedWeight& weight, const CudaDeviceInfo& device, int64_t M) {
  TimedPlan best;
  for (size_t tile = 0; tile < w4ax_family().tiles.size(); ++tile) {
    // Much smaller ones read weights and much larger ones nothing too often.
    const int64_t tokens = w4ax_family().tiles[tile].tile.tokens;
    if (tokens > std::max<int64_t>(2 * M, 16) || M > 16 * tokens) continue;
    const TilePlan plan = plan_whole_tiles(weight.shape(M), device, static_cast<int>(tile));
    const double microseconds = weight.time({.name = "whole"}, plan, M);
    if (best.microseconds > 0 && microseconds >= best.microseconds) continue;
    best = {plan, microseconds};
  }
  return best;
}

void add_times(const CudaContext& context, const TimedWeight& weight, int64_t M,
               const GpuRates& rates, std::vector<AblationTime>* times) {
  const ProductShape shape = weight.shape(M);
  const TilePlan full_plan = plan_tiles(w4ax_family(), shape, context.device);
  const TimedPlan whole = fastest_whole_plan(weight, context.device, M);
  double full_microseconds = 0;
  for (const AblationVariant& variant : ablation_variants()) {
    const TilePlan& plan = variant.has_whole_tiles ? whole.plan : full_plan;
    const double microseconds = weight.time(variant, plan, M);
    if (full_microseconds == 0) full_microseconds = microseconds;  // the first one is "full"
    times->push_back({.variant = variant.name,
                      .plan = str(plan),
                      .N = shape.N,
                      .K = shape.K,
                      .M = M,
                      .microseconds = microseconds,
                      .ratio = microseconds / full_microseconds,
                      .floor_microseconds = weight.floor_microseconds(rates, M)});
  }
}

}  // namespace

std::vector<AblationTime> time_ablation(const CudaContext& context,
                                        const TimeAblationOptions& options) {
  std::vector<AblationTime> times;
  if (options.rows.empty()) return times;
  const int64_t rows_max = *std::max_element(options.rows.begin(), options.rows.end());
  for (const auto& [N, K] : options.shapes.empty() ? llama_gemm_shapes() : options.shapes) {
    const TimedWeight weight(context, {.M = rows_max, .N = N, .K = K});
    for (const int64_t M : options.rows) add_times(context, weight, M, options.rates, &times);
  }
  return times;
}

}  // namespace halley::cuda
