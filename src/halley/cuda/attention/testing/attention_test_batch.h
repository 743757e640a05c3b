// For tests: a batch over a paged cache in host memory, and the expected attention outputs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "halley/base/checked_math.h"
#include "halley/core/float16.h"
#include "halley/kernels/attention/attention.h"
#include "halley/kernels/attention/testing/attention_cases.h"
#include "halley/kernels/attention/testing/attention_reference.h"

namespace halley {

/// Pages are in shuffled order and hold NaN wherever no token is; page tables have -1 past their
/// ends. Queries are rounded to f16 or bf16.
class AttentionTestBatch {
 public:
  AttentionTestBatch(const AttentionCase& shape, bool q_is_bf16, uint32_t seed)
      : shape_(shape), layout_{shape.dtype, shape.num_kv_heads, shape.head_dim, shape.page_tokens} {
    for (const auto& sequence : shape.sequences) {
      const int64_t num_tokens = sequence.num_past_tokens + sequence.num_new_tokens;
      const int64_t num_pages = ceil_div(num_tokens, shape.page_tokens);
      table_stride_ = std::max(table_stride_, num_pages + 2);
      num_pages_ += num_pages;
      num_rows_ += sequence.num_new_tokens;
    }
    std::mt19937 random(seed);
    pages_.assign(static_cast<size_t>(num_pages_) * layout_.page_bytes(), std::byte{0xFF});
    make_tables(random);
    fill_pages(random);
    std::normal_distribution<float> normal;
    q_.resize(static_cast<size_t>(num_rows_ * num_columns()));
    for (float& value : q_) {
      const float q = normal(random);
      value = q_is_bf16 ? bf16_to_f32(f32_to_bf16(q)) : f16_to_f32(f32_to_f16(q));
    }
  }

  AttentionProblem problem() const {
    return {shape_.num_heads, scale_factor / std::sqrt(static_cast<float>(shape_.head_dim)),
            shape_.soft_cap, shape_.window};
  }
  const KvPageLayout& layout() const { return layout_; }
  KvLayerView cache() { return {layout_, pages_.data(), num_pages_}; }
  std::vector<BatchSequence> sequences() const {
    std::vector<BatchSequence> result;
    int64_t row = 0;
    for (size_t i = 0; i < shape_.sequences.size(); ++i) {
      const auto& sequence = shape_.sequences[i];
      result.push_back({row, sequence.num_new_tokens, sequence.num_past_tokens,
                        std::span(tables_).subspan(i * static_cast<size_t>(table_stride_),
                                                   static_cast<size_t>(table_stride_))});
      row += sequence.num_new_tokens;
    }
    return result;
  }
  std::vector<std::byte>& pages() { return pages_; }
  const std::vector<int32_t>& tables() const { return tables_; }
  int64_t table_stride() const { return table_stride_; }
  const std::vector<float>& q() const { return q_; }
  int64_t num_rows() const { return num_rows_; }
  int64_t num_columns() const { return shape_.num_heads * shape_.head_dim; }

  /// Attention by its definition in f64.
  std::vector<float> expected() {
    std::vector<float> out(q_.size());
    paged_attention_reference(problem(), cache(), sequences(),
                              f32_matrix(std::as_const(q_).data(), num_rows_, num_columns()),
                              f32_matrix(out.data(), num_rows_, num_columns()));
    return out;
  }

  float scale_factor = 1;

  /// A token's value in the first kv head, to be overwritten.
  KvRow value_row(size_t sequence, int64_t token) {
    return layout_.value_row(page_of(sequence, token), 0, token % layout_.page_tokens);
  }

 private:
  void make_tables(std::mt19937& random) {
    std::vector<int32_t> order(static_cast<size_t>(num_pages_));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    tables_.assign(shape_.sequences.size() * static_cast<size_t>(table_stride_), -1);
    auto next = order.begin();
    for (size_t i = 0; i < shape_.sequences.size(); ++i) {
      const auto& sequence = shape_.sequences[i];
      const int64_t count =
          ceil_div(sequence.num_past_tokens + sequence.num_new_tokens, shape_.page_tokens);
      std::copy(next, next + count, tables_.begin() + static_cast<int64_t>(i) * table_stride_);
      next += count;
    }
  }

  std::byte* page_of(size_t sequence, int64_t token) {
    const size_t entry = sequence * static_cast<size_t>(table_stride_) +
                         static_cast<size_t>(token / layout_.page_tokens);
    return pages_.data() + static_cast<size_t>(tables_[entry]) * layout_.page_bytes();
  }

  void fill_pages(std::mt19937& random) {
    for (size_t i = 0; i < shape_.sequences.size(); ++i) {
      const auto& sequence = shape_.sequences[i];
      for (int64_t t = 0; t < sequence.num_past_tokens + sequence.num_new_tokens; ++t) {
        for (int64_t head = 0; head < layout_.num_kv_heads; ++head) {
          fill_row(layout_.key_row(page_of(i, t), head, t % layout_.page_tokens), random);
          fill_row(layout_.value_row(page_of(i, t), head, t % layout_.page_tokens), random);
        }
      }
    }
  }

  void fill_row(KvRow row, std::mt19937& random) const {
    if (has_scales(layout_.dtype)) return fill_scaled_row(row, random);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < static_cast<size_t>(layout_.head_dim); ++i) {
      const float value = normal(random);
      const uint16_t bits = layout_.dtype == KvDType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
      std::memcpy(row.data + 2 * i, &bits, sizeof(bits));
    }
  }

  // Random quantized values other than NaN, with scales that dequantize them to size 1; some rows
  // have very small scales.
  void fill_scaled_row(KvRow row, std::mt19937& random) const {
    std::uniform_real_distribution<float> uniform(0.5f, 2.0f);
    const float factor = uniform(random) * (random() % 8 == 0 ? 0x1p-7f : 1.0f);
    for (size_t i = 0; i < layout_.row_bytes(); ++i) {
      auto code = static_cast<uint8_t>(random());
      if (layout_.dtype == KvDType::kFp8E4M3 && (code & 0x7F) == 0x7F) code ^= 1;
      row.data[i] = std::byte{code};
    }
    if (layout_.dtype == KvDType::kFp8E4M3) {
      const float scale = factor / 150.0f;
      std::memcpy(row.scale, &scale, sizeof(scale));
      return;
    }
    const float range = 3.0f * factor;
    const uint16_t bits[] = {f32_to_f16(range / (layout_.dtype == KvDType::kInt8 ? 255.0f : 15.0f)),
                             f32_to_f16(-0.5f * uniform(random) * range)};
    std::memcpy(row.scale, bits, sizeof(bits));
  }

  AttentionCase shape_;
  KvPageLayout layout_;
  int64_t num_rows_ = 0, num_pages_ = 3, table_stride_ = 1;
  std::vector<std::byte> pages_;
  std::vector<int32_t> tables_;
  std::vector<float> q_;
};

}  // namespace halley
