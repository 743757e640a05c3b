#include "halley/cli/logits_file.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::cli {
namespace {

enum Slot : size_t { kTokenIds, kTargetIds, kCodes, kMin, kStep };

std::vector<TensorInfo> tensors_of(int64_t num_tokens, int64_t num_rows, int64_t vocab_size) {
  return {{"token_ids", DType::kI32, {num_tokens}},
          {"target_ids", DType::kI32, {num_rows}},
          {"log_prob_codes", DType::kU16, {num_rows, vocab_size}},
          {"log_prob_min", DType::kF32, {num_rows}},
          {"log_prob_step", DType::kF32, {num_rows}}};
}

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

}  // namespace

LogitsFile::LogitsFile(const std::filesystem::path& path, std::span<const int32_t> token_ids,
                       int64_t num_rows, int64_t vocab_size, int64_t window)
    : writer_(path, tensors_of(static_cast<int64_t>(token_ids.size()), num_rows, vocab_size),
              {{"format", "halley-logits-1"}, {"window", std::to_string(window)}}),
      codes_(static_cast<size_t>(vocab_size)) {
  writer_.append(kTokenIds, std::as_bytes(token_ids));
}

void LogitsFile::append(std::span<const float> logits, int32_t target_id) {
  const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - *high);
  const double log_sum = *high + std::log(sum);
  if (!std::isfinite(log_sum) || !std::isfinite(*low)) {
    throw InputError(str("row ", num_written_, " of the logits: expected finite numbers, got ",
                         *low, " to ", *high, ". The model's weights are damaged."));
  }
  const double step = std::max((static_cast<double>(*high) - *low) / 65535.0, 1e-30);
  for (size_t i = 0; i < logits.size(); ++i) {
    codes_[i] = static_cast<uint16_t>(std::lround((static_cast<double>(logits[i]) - *low) / step));
  }
  writer_.append(kTargetIds, bytes_of(target_id));
  writer_.append(kCodes, std::as_bytes(std::span<const uint16_t>(codes_)));
  writer_.append(kMin, bytes_of(static_cast<float>(*low - log_sum)));
  writer_.append(kStep, bytes_of(static_cast<float>(step)));
  ++num_written_;
}

}  // namespace halley::cli
