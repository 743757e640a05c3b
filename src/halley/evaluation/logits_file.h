// A file of reference logits for later comparisons with quantized models: the log probabilities of
// every scored row, in 16 bits each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "halley/base/file.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/checkpoint/safetensors/safetensors_writer.h"
#include "halley/engine/window_forward.h"

namespace halley {

/// A safetensors file, metadata format = "halley-logits-1" and window = its tokens, with
///   token_ids       i32 [n]        the whole text
///   target_ids      i32 [rows]     the token that each row predicts
///   log_prob_codes  u16 [rows, V]  log p = log_prob_min + code * log_prob_step
///   log_prob_min    f32 [rows]
///   log_prob_step   f32 [rows]     1/65535 of the row's range: an error of 2e-4 at a range of 30
class LogitsFile {
 public:
  LogitsFile(const std::filesystem::path& path, std::span<const int32_t> token_ids,
             int64_t num_rows, int64_t vocab_size, int64_t window);

  /// Appends the next row. Throws InputError if a logit is not finite.
  void append(std::span<const float> logits, int32_t target_id);
  void finish() { writer_.finish(); }

 private:
  SafetensorsWriter writer_;
  std::vector<uint16_t> codes_;
  int64_t num_written_ = 0;
};

/// Reads such a file, which is memory-mapped.
class LogitsReader {
 public:
  /// Throws InputError if the file cannot be read or is of another kind, CheckpointError if it is
  /// damaged.
  explicit LogitsReader(const std::filesystem::path& path);

  int64_t vocab_size() const { return vocab_size_; }

  /// Throws InputError unless the file has windows of `window` tokens and its text begins with
  /// `ids`.
  void check(std::span<const int32_t> ids, int64_t window) const;

  /// Log probabilities [chunk.num_rows, V], valid until the next call. The chunk is of a text and
  /// window that have passed check().
  std::span<const float> read(const WindowChunk& chunk);

 private:
  std::span<const std::byte> tensor(const SafetensorsHeader& header, const char* name, DType dtype,
                                    const Shape& shape) const;

  std::string where_;
  MappedFile file_;
  int64_t window_ = 0;
  int64_t vocab_size_ = 0;
  std::vector<int32_t> ids_;
  std::span<const std::byte> codes_, min_, step_;
  std::vector<float> row_logits_;
};

}  // namespace halley
