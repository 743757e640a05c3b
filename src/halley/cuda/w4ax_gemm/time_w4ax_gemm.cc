#include "halley/cuda/w4ax_gemm/time_w4ax_gemm.h"

#include <algorithm>
#include <random>
#include <string>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/hopper_tile/tile_settings.h"
#include "halley/cuda/w4ax_gemm/w4ax_layout.h"

namespace halley::cuda {
namespace {

constexpr float kScale = 0x1p-6f;

}  // namespace

TimedW4axWeight::TimedW4axWeight(const CudaContext& context, const ProductShape& largest)
    : shape_(largest),
      x_stride_(round_up<int64_t>(largest.K, 16)),  // rows at multiples of 16 bytes
      x_scales_pitch_(round_up(largest.M, kW4axTokenPadding)),
      x_(static_cast<size_t>(largest.M * x_stride_), "inputs to time"),
      x_scales_(static_cast<size_t>(ceil_div<int64_t>(largest.K, kW4axInputs) * x_scales_pitch_) *
                    sizeof(float),
                "scales to time"),
      y_(static_cast<size_t>(largest.M * largest.N) * 2, "outputs to time") {
  fill_inputs();
  fill_numbers(x_scales_, kScale);
  const std::vector<uint8_t> codes = random_codes((size_t{4} << 20) + 4096);
  size_t num_copies = 2;
  for (size_t i = 0; i < num_copies; ++i) {
    weights_.emplace_back(context, largest.N, largest.K);
    context.stream.synchronize();  // it is zero
    const W4axWeight& weight = weights_.back();
    fill_pattern(weight.codes, codes);
    fill_numbers(weight.scales, kScale);
    num_copies = num_timed_copies(context, weight.codes.num_bytes());
  }
}

/// What the tensor cores multiply sets their power.
void TimedW4axWeight::fill_inputs() {
  constexpr int64_t kPatternRows = 61, kBlocks = 5;  // of which one has 8 bits
  std::mt19937 random(8);
  std::vector<uint8_t> pattern(static_cast<size_t>(kPatternRows * x_stride_));
  for (size_t i = 0; i < pattern.size(); ++i) {
    const int64_t block = static_cast<int64_t>(i) % x_stride_ / kW4axInputs;
    const auto number = static_cast<int8_t>(random());
    pattern[i] = static_cast<uint8_t>(block % kBlocks == 0 ? number : number >> 4);
  }
  fill_pattern(x_, pattern);
}

W4axOperands TimedW4axWeight::operands(int64_t M) const {
  return {.x = {x_.data(), DType::kI8, M, shape_.K, x_stride_},
          .x_scales = reinterpret_cast<const float*>(x_scales_.data()),
          .x_scales_pitch = x_scales_pitch_};
}

Matrix TimedW4axWeight::outputs(int64_t M) const {
  return {y_.data(), DType::kF16, M, shape_.N, shape_.N};
}

std::function<void(size_t)> TimedW4axWeight::product(const CudaContext& context,
                                                     const TilePlan& plan, int64_t M) const {
  W4axOperands operands = this->operands(M);
  operands.starts_early = true;
  return [this, &context, plan, operands, M](size_t copy) {
    w4ax_gemm_planned(context, this->copy(copy), operands, plan, outputs(M));
  };
}

double TimedW4axWeight::floor_microseconds(const GpuRates& rates, int64_t M) const {
  return cuda::floor_microseconds(rates, {.N = shape_.N,
                                          .K = shape_.K,
                                          .M = M,
                                          .weight_bytes = weight_bytes(),
                                          .input_bytes = 1,
                                          .operations_per_second = rates.s8_per_second});
}

std::vector<GemmTime> time_w4ax_gemm(const CudaContext& context, const TimeGemmOptions& options) {
  std::vector<GemmTime> times;
  for (const auto& [N, K] : timed_shapes(options)) {
    const TimedW4axWeight weight(context, {.M = timed_rows_max(options), .N = N, .K = K});
    for (const int64_t M : options.rows) {
      const ProductShape shape = weight.shape(M);
      W4axOperands operands = weight.operands(M);
      operands.starts_early = true;
      GemmTime timed = {.problem = "w4ax",
                        .N = N,
                        .K = K,
                        .M = M,
                        .weight_bytes = weight.weight_bytes(),
                        .floor_microseconds = weight.floor_microseconds(options.rates, M)};
      const bool is_narrow = is_w4ax_narrow(context, weight.copy(0), M);
      if (is_narrow) {
        timed.kernel = "narrow";
        timed.time = time_starts(context, weight.num_copies(), [&](size_t copy) {
          w4ax_gemm_narrow(context, weight.copy(copy), operands, weight.outputs(M));
        });
        times.push_back(timed);
        if (!options.has_all_plans) continue;
      }
      const std::string chosen = str(plan_tiles(w4ax_family(), shape, context.device));
      for (const TilePlan& plan :
           timed_plans(w4ax_family(), shape, context.device, options.has_all_plans)) {
        timed.kernel = str(plan);
        timed.is_chosen = !is_narrow && timed.kernel == chosen;
        timed.time = time_starts(context, weight.num_copies(), weight.product(context, plan, M));
        times.push_back(timed);
      }
    }
  }
  return times;
}

std::vector<TunedPlan> tune_w4ax_gemm(const CudaContext& context, const TunedGemm& gemm,
                                      const std::vector<int64_t>& rows,
                                      const OnTunedPlan& on_plan) {
  std::vector<TunedPlan> tuned;
  if (rows.empty()) return tuned;
  const TimedW4axWeight weight(
      context, {.M = *std::max_element(rows.begin(), rows.end()), .N = gemm.N, .K = gemm.K});
  for (const int64_t M : rows) {
    // w4ax_gemm() takes no tiles there.
    if (is_w4ax_narrow(context, weight.copy(0), M)) continue;
    std::vector<TunedCandidate> candidates;
    for (const TilePlan& plan :
         timed_plans(w4ax_family(), weight.shape(M), context.device, /*has_all_tiles=*/true)) {
      candidates.push_back({settings_of(plan), weight.product(context, plan, M)});
    }
    tuned.push_back(fastest_plan(context, weight.num_copies(), gemm, M, candidates));
    on_plan(tuned.back());
  }
  return tuned;
}

}  // namespace halley::cuda
