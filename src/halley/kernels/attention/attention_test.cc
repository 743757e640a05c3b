#include "halley/kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/core/float16.h"
#include "halley/kernels/attention/testing/attention_cases.h"
#include "halley/kernels/attention/testing/attention_reference.h"
#include "halley/kernels/kv/testing/kv_reference.h"
#include "halley/kernels/testing/guarded_matrix.h"
#include "halley/kernels/testing/simd_targets.h"

namespace halley {
namespace {

// Values are of size 1 and weights sum to 1. A score of size 5 from a dot product of up to 256
// terms has an error near 2e-6, which is the relative error of its weight.
constexpr double kAttentionTolerance = 1e-5;

// A batch over a cache whose pages are in a shuffled order and hold NaN wherever no token is.
class Batch {
 public:
  Batch(const AttentionCase& shape, uint32_t seed)
      : shape_(shape), layout_{shape.dtype, shape.num_kv_heads, shape.head_dim, shape.page_tokens} {
    int64_t num_pages = 3;  // some that belong to nobody
    for (const auto& sequence : shape.sequences) {
      num_tokens_.push_back(sequence.num_past_tokens + sequence.num_new_tokens);
      num_pages += ceil_div(num_tokens_.back(), shape.page_tokens);
      num_rows_ += sequence.num_new_tokens;
    }
    std::vector<int32_t> order(static_cast<size_t>(num_pages));
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(seed);
    std::shuffle(order.begin(), order.end(), random);
    pages_.assign(static_cast<size_t>(num_pages) * layout_.page_bytes(), std::byte{0xFF});
    auto next = order.begin();
    for (const int64_t tokens : num_tokens_) {
      const int64_t count = ceil_div(tokens, shape.page_tokens);
      page_tables_.emplace_back(next, next + count);
      next += count;
    }
    num_pages_ = num_pages;
    fill(random);
    q_ = std::make_unique<GuardedMatrix>(num_rows_, shape.num_heads * shape.head_dim);
    q_->fill_normal(seed + 1);
  }

  AttentionProblem problem() const {
    return {shape_.num_heads, 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)),
            shape_.soft_cap, shape_.window};
  }
  KvLayerView cache() { return {layout_, pages_.data(), num_pages_}; }
  std::vector<BatchSequence> sequences() const {
    std::vector<BatchSequence> result;
    int64_t row = 0;
    for (size_t i = 0; i < page_tables_.size(); ++i) {
      const auto& sequence = shape_.sequences[i];
      result.push_back({row, sequence.num_new_tokens, sequence.num_past_tokens, page_tables_[i]});
      row += sequence.num_new_tokens;
    }
    return result;
  }
  ConstMatrix q() { return q_->matrix(); }
  GuardedMatrix blank_output() const {
    return GuardedMatrix(num_rows_, shape_.num_heads * shape_.head_dim, 3);
  }
  // A token's value in the first kv head, to be overwritten.
  KvRow value_row(size_t sequence, int64_t token) {
    return layout_.value_row(page_of(sequence, token), 0, token % layout_.page_tokens);
  }

 private:
  std::byte* page_of(size_t sequence, int64_t token) {
    const int32_t page = page_tables_[sequence][static_cast<size_t>(token / layout_.page_tokens)];
    return pages_.data() + static_cast<size_t>(page) * layout_.page_bytes();
  }

  void fill(std::mt19937& random) {
    for (size_t i = 0; i < page_tables_.size(); ++i) {
      for (int64_t token = 0; token < num_tokens_[i]; ++token) {
        for (int64_t head = 0; head < layout_.num_kv_heads; ++head) {
          const int64_t slot = token % layout_.page_tokens;
          fill_row(layout_.key_row(page_of(i, token), head, slot), random);
          fill_row(layout_.value_row(page_of(i, token), head, slot), random);
        }
      }
    }
  }

  void fill_row(KvRow row, std::mt19937& random) const {
    if (has_scales(layout_.dtype)) {
      fill_scaled_row(row, random);
      return;
    }
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < static_cast<size_t>(layout_.head_dim); ++i) {
      const float value = normal(random);
      const uint16_t bits = layout_.dtype == KvDType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
      if (layout_.dtype == KvDType::kF32) {
        std::memcpy(row.data + 4 * i, &value, sizeof(value));
      } else {
        std::memcpy(row.data + 2 * i, &bits, sizeof(bits));
      }
    }
  }

  // Any quantized values but NaN, and scales that dequantize them to size 1.
  void fill_scaled_row(KvRow row, std::mt19937& random) const {
    std::uniform_real_distribution<float> factor(0.5f, 2.0f);
    for (size_t i = 0; i < layout_.row_bytes(); ++i) {
      auto code = static_cast<uint8_t>(random());
      if (layout_.dtype == KvDType::kFp8E4M3 && (code & 0x7F) == 0x7F) code ^= 1;
      row.data[i] = std::byte{code};
    }
    if (layout_.dtype == KvDType::kFp8E4M3) {
      const float scale = factor(random) / 150.0f;
      std::memcpy(row.scale, &scale, sizeof(scale));
      return;
    }
    const float range = 3.0f * factor(random);
    const uint16_t bits[] = {f32_to_f16(range / (layout_.dtype == KvDType::kInt8 ? 255.0f : 15.0f)),
                             f32_to_f16(-0.5f * factor(random) * range)};
    std::memcpy(row.scale, bits, sizeof(bits));
  }

  AttentionCase shape_;
  KvPageLayout layout_;
  int64_t num_rows_ = 0, num_pages_ = 0;
  std::vector<int64_t> num_tokens_;
  std::vector<std::vector<int32_t>> page_tables_;
  std::vector<std::byte> pages_;
  std::unique_ptr<GuardedMatrix> q_;
};

double largest_difference(GuardedMatrix& a, GuardedMatrix& b) {
  double largest = 0;
  for (int64_t m = 0; m < a.num_rows(); ++m) {
    for (int64_t i = 0; i < a.num_cols(); ++i) {
      const double difference = std::abs(static_cast<double>(a.row(m)[i] - b.row(m)[i]));
      if (!(difference <= largest)) largest = difference;  // NaN too
      if (std::isnan(largest)) return largest;
    }
  }
  return largest;
}

TEST(Attention, AgreesWithTheReferenceOnEverySimdTargetForEveryTypeOfTheCache) {
  ThreadPool pool(2);
  ExecContext context{pool};
  for (AttentionCase shape : attention_test_cases()) {
    for (const KvDType dtype : all_kv_dtypes()) {
      shape.dtype = dtype;
      Batch batch(shape, 7);
      GuardedMatrix expected = batch.blank_output();
      paged_attention_reference(batch.problem(), batch.cache(), batch.sequences(), batch.q(),
                                expected.matrix());
      for_each_simd_target([&](const char* target) {
        GuardedMatrix out = batch.blank_output();
        paged_attention(context, batch.problem(), batch.cache(), batch.sequences(), batch.q(),
                        out.matrix());
        EXPECT_LE(largest_difference(out, expected), kAttentionTolerance)
            << shape.name << " " << dtype << " " << target;
        EXPECT_TRUE(out.guards_are_intact()) << shape.name << " " << dtype << " " << target;
      });
    }
  }
}

// Runs the batch's first sequence in chunks: rows [begin, end) of its new tokens at a time.
void run_in_chunks(ExecContext& context, Batch& batch, std::span<const int64_t> chunks,
                   GuardedMatrix& out) {
  const BatchSequence whole = batch.sequences()[0];
  int64_t begin = 0;
  for (size_t i = 0; begin < whole.num_new_tokens; ++i) {
    const int64_t size = std::min(chunks[i % chunks.size()], whole.num_new_tokens - begin);
    const BatchSequence chunk{0, size, whole.num_past_tokens + begin, whole.page_table};
    paged_attention(context, batch.problem(), batch.cache(), {&chunk, 1},
                    batch.q().rows(begin, begin + size), out.matrix().rows(begin, begin + size));
    begin += size;
  }
}

TEST(Attention, ATokensBitsDoNotDependOnChunksOrThreads) {
  const std::vector<AttentionCase> shapes = {
      {"groups", 4, 1, 64, 16, KvDType::kF16, 0, 0, {{0, 540}}},
      {"single heads", 2, 2, 80, 3, KvDType::kBf16, 0, 0, {{0, 530}}},
      {"window and cap", 4, 1, 32, 16, KvDType::kF32, 200, 10.0f, {{0, 540}}},
      {"int8", 4, 1, 64, 16, KvDType::kInt8, 0, 0, {{0, 140}}},
      {"int4", 4, 2, 33, 5, KvDType::kInt4, 0, 0, {{0, 150}}},
      {"fp8", 2, 2, 32, 3, KvDType::kFp8E4M3, 100, 0, {{0, 140}}},
  };
  for (const AttentionCase& shape : shapes) {
    Batch batch(shape, 11);
    for_each_simd_target([&](const char* target) {
      ThreadPool pool(1);
      ExecContext context{pool};
      GuardedMatrix whole = batch.blank_output();
      paged_attention(context, batch.problem(), batch.cache(), batch.sequences(), batch.q(),
                      whole.matrix());
      const std::vector<std::vector<int64_t>> chunkings = {
          {1, 1, 1, 60}, {7, 64, 1}, {511, 2}, {33}};
      int num_threads = 1;
      for (const std::vector<int64_t>& chunks : chunkings) {
        ThreadPool other_pool(num_threads++);
        ExecContext other_context{other_pool};
        GuardedMatrix out = batch.blank_output();
        run_in_chunks(other_context, batch, chunks, out);
        for (int64_t m = 0; m < out.num_rows(); ++m) {
          ASSERT_TRUE(out.row_equals(m, whole.row(m)))
              << shape.name << target << " row " << m << " chunks of " << chunks[0];
        }
      }
    });
  }
}

TEST(Attention, ATokensBitsDoNotDependOnItsNeighboursInTheBatch) {
  const AttentionCase shape{"mixed", 8,  2,
                            64,      16, KvDType::kF16,
                            0,       0,  {{0, 1}, {999, 1}, {0, 100}, {600, 13}, {2100, 1}}};
  Batch batch(shape, 13);
  for_each_simd_target([&](const char* target) {
    ThreadPool pool(3);
    ExecContext context{pool};
    GuardedMatrix together = batch.blank_output();
    paged_attention(context, batch.problem(), batch.cache(), batch.sequences(), batch.q(),
                    together.matrix());
    for (BatchSequence sequence : batch.sequences()) {
      const int64_t begin = sequence.first_row, end = begin + sequence.num_new_tokens;
      GuardedMatrix alone = batch.blank_output();
      sequence.first_row = 0;
      paged_attention(context, batch.problem(), batch.cache(), {&sequence, 1},
                      batch.q().rows(begin, end), alone.matrix().rows(begin, end));
      for (int64_t m = begin; m < end; ++m) {
        EXPECT_TRUE(alone.row_equals(m, together.row(m))) << target << " row " << m;
      }
    }
  });
}

TEST(Attention, ANotANumberReachesOnlyTheTokensThatSeeIt) {
  const AttentionCase shape{"nan", 4, 1, 32, 16, KvDType::kF16, 40, 0, {{0, 130}}};
  Batch batch(shape, 17);
  const uint16_t nan = f32_to_f16(std::numeric_limits<float>::quiet_NaN());
  std::memcpy(batch.value_row(0, 70).data, &nan, sizeof(nan));
  ThreadPool pool(2);
  ExecContext context{pool};
  for_each_simd_target([&](const char* target) {
    GuardedMatrix out = batch.blank_output();
    paged_attention(context, batch.problem(), batch.cache(), batch.sequences(), batch.q(),
                    out.matrix());
    for (int64_t m = 0; m < out.num_rows(); ++m) {
      const bool sees = m >= 70 && m < 110;
      EXPECT_EQ(std::isnan(out.row(m)[0]), sees) << target << " row " << m;
      EXPECT_FALSE(std::isnan(out.row(m)[1])) << target << " row " << m;
    }
  });
}

TEST(Attention, AScaleThatIsNotANumberReachesOnlyTheTokensThatSeeIt) {
  for (const KvDType dtype : {KvDType::kInt8, KvDType::kInt4, KvDType::kFp8E4M3}) {
    Batch batch({"nan", 4, 1, 32, 16, dtype, 40, 0, {{0, 130}}}, 17);
    std::memset(batch.value_row(0, 70).scale, 0xFF, 4);
    ThreadPool pool(2);
    ExecContext context{pool};
    for_each_simd_target([&](const char* target) {
      GuardedMatrix out = batch.blank_output();
      paged_attention(context, batch.problem(), batch.cache(), batch.sequences(), batch.q(),
                      out.matrix());
      for (int64_t m = 0; m < out.num_rows(); ++m) {
        const bool sees = m >= 70 && m < 110;
        EXPECT_EQ(std::isnan(out.row(m)[0]), sees) << target << " " << dtype << " row " << m;
        EXPECT_EQ(std::isnan(out.row(m)[31]), sees) << target << " " << dtype << " row " << m;
      }
    });
  }
}

// One token alone sees itself alone: its output is its value, as it is in the cache.
TEST(Attention, DecodesEveryCodeExactly) {
  ThreadPool pool(1);
  ExecContext context{pool};
  for (const KvDType dtype : {KvDType::kInt8, KvDType::kInt4, KvDType::kFp8E4M3}) {
    Batch batch({"quantized", 1, 1, 256, 16, dtype, 0, 0, {{0, 1}}}, 19);
    const KvRow row = batch.value_row(0, 0);
    for (size_t i = 0; i < (dtype == KvDType::kInt4 ? 128u : 256u); ++i) {
      row.data[i] = static_cast<std::byte>(i);
    }
    for_each_simd_target([&](const char* target) {
      GuardedMatrix out = batch.blank_output();
      paged_attention(context, batch.problem(), batch.cache(), batch.sequences(), batch.q(),
                      out.matrix());
      for (int64_t i = 0; i < 256; ++i) {
        const auto expected = static_cast<float>(kv_element(dtype, row.data, row.scale, i));
        const float got = out.row(0)[i];
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(got)) << target << " " << dtype << " code " << i;
        } else {
          EXPECT_EQ(got, expected) << target << " " << dtype << " code " << i;
        }
      }
    });
  }
}

TEST(AttentionDeathTest, RejectsHeadsThatAreNotAMultipleOfTheKvHeads) {
  Batch batch({"bad", 4, 2, 16, 16, KvDType::kF16, 0, 0, {{0, 2}}}, 1);
  ThreadPool pool(1);
  ExecContext context{pool};
  AttentionProblem problem = batch.problem();
  problem.num_heads = 3;
  GuardedMatrix out = batch.blank_output();
  EXPECT_DEATH(
      paged_attention(context, problem, batch.cache(), batch.sequences(), batch.q(), out.matrix()),
      "num_heads % layout.num_kv_heads");
}

}  // namespace
}  // namespace halley
