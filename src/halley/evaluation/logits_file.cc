#include "halley/evaluation/logits_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/engine/perplexity.h"

namespace halley {
namespace {

constexpr const char* kFormat = "halley-logits-1";

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
              {{"format", kFormat}, {"window", std::to_string(window)}}),
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

namespace {

template <typename T>
T read_at(std::span<const std::byte> bytes, size_t index) {
  T value;  // the file need not align its tensors
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

// The window that the metadata declares; 0 if it declares none.
int64_t declared_window(const SafetensorsHeader& header) {
  const auto it = header.metadata.find("window");
  if (it == header.metadata.end()) return 0;
  int64_t window = 0;
  const char* end = it->second.data() + it->second.size();
  const auto [rest, error] = std::from_chars(it->second.data(), end, window);
  return error == std::errc() && rest == end && window >= 2 ? window : 0;
}

}  // namespace

LogitsReader::LogitsReader(const std::filesystem::path& path)
    : where_(path.string()), file_(MappedFile::open(path)) {
  const SafetensorsHeader header = parse_safetensors(file_.bytes(), where_);
  const auto format = header.metadata.find("format");
  window_ = declared_window(header);
  if (format == header.metadata.end() || format->second != kFormat || window_ == 0) {
    throw InputError(str(where_,
                         ": expected a file that `halley eval --logits` wrote (metadata "
                         "format \"",
                         kFormat, "\" and a window), got another one."));
  }
  const auto dim = [&](const char* name, size_t rank, size_t axis) {
    for (const auto& entry : header.entries) {
      if (entry.info.name == name && entry.info.shape.size() == rank) return entry.info.shape[axis];
    }
    return int64_t{0};
  };
  const int64_t num_ids = dim("token_ids", 1, 0);
  const int64_t num_rows = num_scored_tokens(num_ids, window_);
  vocab_size_ = dim("log_prob_codes", 2, 1);
  const auto ids = tensor(header, "token_ids", DType::kI32, {num_ids});
  for (size_t i = 0; i < static_cast<size_t>(num_ids); ++i)
    ids_.push_back(read_at<int32_t>(ids, i));
  codes_ = tensor(header, "log_prob_codes", DType::kU16, {num_rows, vocab_size_});
  min_ = tensor(header, "log_prob_min", DType::kF32, {num_rows});
  step_ = tensor(header, "log_prob_step", DType::kF32, {num_rows});
}

std::span<const std::byte> LogitsReader::tensor(const SafetensorsHeader& header, const char* name,
                                                DType dtype, const Shape& shape) const {
  for (const auto& entry : header.entries) {
    if (entry.info.name != name) continue;
    if (entry.info.dtype != dtype || entry.info.shape != shape) {
      throw CheckpointError(str(where_, ": tensor ", quote(name), ": expected ", dtype, " ", shape,
                                ", got ", entry.info.dtype, " ", entry.info.shape,
                                ". Write the file again."));
    }
    return file_.bytes().subspan(header.data_start + entry.offset, entry.info.num_bytes);
  }
  throw CheckpointError(
      str(where_, ": expected a tensor ", quote(name), ", got none. Write the file again."));
}

void LogitsReader::check(std::span<const int32_t> ids, int64_t window) const {
  if (window != window_) {
    throw InputError(str(where_, ": expected windows of ", window, " tokens, got ", window_,
                         ". Pass --window ", window_, "."));
  }
  if (ids.size() > ids_.size() || !std::equal(ids.begin(), ids.end(), ids_.begin())) {
    throw InputError(str(where_,
                         ": expected the tokens of this text, got those of another text or "
                         "tokenizer (",
                         ids_.size(), " tokens there, ", ids.size(),
                         " here). Write the file from this text."));
  }
}

std::span<const float> LogitsReader::read(const WindowChunk& chunk) {
  // Rows of the file: one for each token of a window but its last.
  const int64_t first_row =
      chunk.window_begin / window_ * (window_ - 1) + (chunk.first_row - chunk.window_begin);
  const auto vocab_size = static_cast<size_t>(vocab_size_);
  row_logits_.resize(static_cast<size_t>(chunk.num_rows) * vocab_size);
  for (size_t i = 0; i < static_cast<size_t>(chunk.num_rows); ++i) {
    const size_t row = static_cast<size_t>(first_row) + i;
    const auto low = read_at<float>(min_, row), step = read_at<float>(step_, row);
    for (size_t id = 0; id < vocab_size; ++id) {
      const auto code = static_cast<float>(read_at<uint16_t>(codes_, row * vocab_size + id));
      row_logits_[i * vocab_size + id] = low + code * step;
    }
  }
  return row_logits_;
}

}  // namespace halley
