// The reference logits that later comparisons of a quantized model need: every scored row's log
// probabilities, 16 bits each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "halley/checkpoint/safetensors/safetensors_writer.h"

namespace halley::cli {

/// A safetensors file, metadata format = "halley-logits-1", with
///   token_ids       i32 [n]        the whole text
///   target_ids      i32 [rows]     the token that each row predicts
///   log_prob_codes  u16 [rows, V]  log p = log_prob_min + code * log_prob_step
///   log_prob_min    f32 [rows]
///   log_prob_step   f32 [rows]     1/65535 of the row's range: an error of 2e-4 at a range of 30
class LogitsFile {
 public:
  LogitsFile(const std::filesystem::path& path, std::span<const int32_t> token_ids,
             int64_t num_rows, int64_t vocab_size, int64_t window);

  /// Appends the next row. Throws InputError where a logit is not finite.
  void append(std::span<const float> logits, int32_t target_id);
  void finish() { writer_.finish(); }

 private:
  SafetensorsWriter writer_;
  std::vector<uint16_t> codes_;
  int64_t num_written_ = 0;
};

}  // namespace halley::cli
