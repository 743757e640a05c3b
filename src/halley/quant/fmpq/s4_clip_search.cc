#include "halley/quant/fmpq/s4_clip_search.h"

#include <cstdint>
#include <vector>

#include "halley/base/check.h"
#include "halley/kernels/gemm/activation_quant.h"
#include "halley/kernels/linalg/linalg.h"

namespace halley {
namespace {

/// The error at the layer's output that quantizing its input causes.
class OutputError {
 public:
  OutputError(ExecContext& context, std::span<const ConstMatrix> weights, const InputStats& stats,
              const BlockPlan& plan)
      : context_(context),
        weights_(weights),
        stats_(stats),
        change_(static_cast<size_t>(stats.num_rows * stats.K)) {
    quant_.activation = ActivationQuant::kS4S8Block128;
    quant_.input_perm = plan.input_perm;
    quant_.num_s8_inputs = plan.num_s8_inputs;
  }

  double mean_square(float clip) {
    quant_.s4_clip = clip;
    const auto num_inputs = static_cast<size_t>(stats_.K);
    for (size_t begin = 0; begin < change_.size(); begin += num_inputs) {
      const std::span<const float> x(stats_.rows.data() + begin, num_inputs);
      round_activations(quant_, x, change_.data() + begin);
      for (size_t k = 0; k < num_inputs; ++k) change_[begin + k] -= x[k];
    }
    double sum = 0, num_outputs = 0;
    for (const ConstMatrix& weight : weights_) {
      output_.resize(static_cast<size_t>(stats_.num_rows * weight.num_rows));
      multiply_transposed(context_, f32_matrix(change_.data(), stats_.num_rows, stats_.K), weight,
                          f32_matrix(output_.data(), stats_.num_rows, weight.num_rows));
      for (const float y : output_) sum += double{y} * double{y};
      num_outputs += static_cast<double>(output_.size());
    }
    return num_outputs == 0 ? 0 : sum / num_outputs;
  }

 private:
  ExecContext& context_;
  std::span<const ConstMatrix> weights_;
  const InputStats& stats_;
  QuantParams quant_;
  std::vector<float> change_, output_;
};

}  // namespace

S4Clip search_s4_clip(ExecContext& context, std::span<const ConstMatrix> weights,
                      const InputStats& stats, const BlockPlan& plan,
                      const S4ClipOptions& options) {
  HALLEY_CHECK(options.num_ratios >= 2 && options.ratio_min > 0 && options.ratio_min < 1,
               options.num_ratios, options.ratio_min);
  OutputError output(context, weights, stats, plan);
  S4Clip best;
  best.error = best.error_unclipped = output.mean_square(1.0f);
  if (plan.num_s8_inputs == stats.K) return best;
  const double step = (1 - options.ratio_min) / (options.num_ratios - 1);
  for (int i = 1; i < options.num_ratios; ++i) {
    const auto ratio = static_cast<float>(1 - i * step);
    const double error = output.mean_square(ratio);
    if (error < best.error) {
      best.ratio = ratio;
      best.error = error;
    }
  }
  return best;
}

}  // namespace halley
