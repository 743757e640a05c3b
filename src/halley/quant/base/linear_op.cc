#include "halley/quant/base/linear_op.h"

#include <algorithm>

namespace halley {

void LinearOp::run(ExecContext& context, ConstMatrix x, Matrix y) const {
  int64_t begin = 0;
  for (const Section& section : sections_) {
    const int64_t end = begin + section.weight.N;
    const float* bias = bias_.empty() ? nullptr : bias_.data() + begin;
    const bool is_low = context.precision == Precision::kLow && section.low_kernel != nullptr;
    const GemmKernel& kernel = is_low ? *section.low_kernel : *section.kernel;
    kernel.launch(context, section.weight, bias, x, y.cols(begin, end));
    begin = end;
  }
}

bool LinearOp::has_row_scales(Precision precision) const {
  return std::any_of(sections_.begin(), sections_.end(), [&](const Section& section) {
    const bool is_low = precision == Precision::kLow && section.low_kernel != nullptr;
    const ActivationQuant activation = is_low ? kLowActivation : section.weight.quant.activation;
    return activation == ActivationQuant::kS8Token || activation == ActivationQuant::kE4m3Token;
  });
}

int64_t LinearOp::out_features() const {
  int64_t total = 0;
  for (const Section& section : sections_) total += section.weight.N;
  return total;
}

size_t LinearOp::packed_bytes() const {
  size_t num_bytes = 0;
  for (const Section& section : sections_) num_bytes += section.weight.num_bytes();
  return num_bytes;
}

}  // namespace halley
