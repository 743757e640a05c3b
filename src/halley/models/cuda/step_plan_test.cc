// Layout of a step's buffers and small arrays.
#include "halley/models/cuda/step_plan.h"

#include <set>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "halley/models/cuda/step_arrays.h"

namespace halley::cuda {
namespace {

LinearSpec linear_of(int64_t outputs, int64_t inputs) {
  LinearSpec spec;
  spec.parts = {{.name = "x", .out_features = outputs, .stored_rows = outputs}};
  spec.in_features = inputs;
  return spec;
}

DecoderConfig config_of(int64_t hidden, int64_t width, int64_t vocab) {
  DecoderConfig config;
  config.hidden_size = hidden;
  config.vocab_size = vocab;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 8;
  config.ropes = {{.inv_freq = std::vector<float>(3)}, {.inv_freq = std::vector<float>(4)}};
  for (const int64_t F : {width, width / 2}) {
    LayerSpec layer;
    layer.mlp.gate_up = {linear_of(2 * F, hidden)};
    layer.mlp.down = {linear_of(hidden, F)};
    config.layers.push_back(layer);
  }
  return config;
}

struct Piece {
  size_t begin, num_bytes;
};

/// Checks that buffers which are live together do not overlap.
void expect_apart(const std::vector<Piece>& pieces, size_t num_bytes) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].begin % 256, 0u) << i;
    EXPECT_LE(pieces[i].begin + pieces[i].num_bytes, num_bytes) << i;
    for (size_t j = 0; j < i; ++j) {
      EXPECT_TRUE(pieces[j].begin + pieces[j].num_bytes <= pieces[i].begin ||
                  pieces[i].begin + pieces[i].num_bytes <= pieces[j].begin)
          << i << " and " << j;
    }
  }
}

size_t bytes_of(int64_t num_rows, int64_t num_cols, int64_t element_bytes) {
  const int64_t row = (num_cols * element_bytes + 15) / 16 * 16;
  return static_cast<size_t>(num_rows * row);
}

TEST(ActivationPlan, KeepsApartWhatIsAliveTogether) {
  for (const auto& [hidden, width, vocab] :
       {std::tuple<int64_t, int64_t, int64_t>{64, 96, 384}, {20, 6, 7}, {8, 512, 3}}) {
    const DecoderConfig config = config_of(hidden, width, vocab);
    for (const StepSize size : {StepSize{1, 1}, {7, 3}, {33, 33}, {16, 0}}) {
      const ActivationPlan plan = plan_activations(config, size);
      const int64_t M = size.num_rows, R = size.num_logit_rows;
      std::vector<Piece> always = {{plan.hidden, bytes_of(M, hidden, 4)},
                                   {plan.normed, bytes_of(M, hidden, 2)},
                                   {plan.block, bytes_of(M, hidden, 2)}};
      for (size_t i = 0; i < config.ropes.size(); ++i) {
        const size_t bytes = static_cast<size_t>(M) * config.ropes[i].inv_freq.size() * 4;
        always.push_back({plan.ropes[i].cos, bytes});
        always.push_back({plan.ropes[i].sin, bytes});
      }
      for (const std::vector<Piece>& phase :
           {std::vector<Piece>{{plan.qkv, bytes_of(M, 64, 2)}, {plan.attended, bytes_of(M, 32, 2)}},
            std::vector<Piece>{{plan.gate_up, bytes_of(M, 2 * width, 2)},
                               {plan.activated, bytes_of(M, width, 2)}},
            std::vector<Piece>{{plan.last, bytes_of(R, hidden, 4)},
                               {plan.last_normed, bytes_of(R, hidden, 2)},
                               {plan.logits, bytes_of(R, vocab, 4)}}}) {
        std::vector<Piece> pieces = always;
        pieces.insert(pieces.end(), phase.begin(), phase.end());
        expect_apart(pieces, plan.num_bytes);
      }
    }
  }
}

TEST(ActivationPlan, GrowsWithTheStep) {
  const DecoderConfig config = config_of(64, 96, 384);
  const size_t most = plan_activations(config, {40, 20}).num_bytes;
  for (int64_t rows = 1; rows <= 40; ++rows) {
    for (const int64_t logit_rows : {int64_t{0}, int64_t{1}, int64_t{20}}) {
      EXPECT_LE(plan_activations(config, {rows, logit_rows}).num_bytes, most);
    }
  }
}

TEST(DecodeBucket, HoldsTheRowsWithoutCrossingAPowerOfTwo) {
  std::set<int64_t> buckets;
  for (int64_t rows = 1; rows <= 1024; ++rows) {
    const int64_t bucket = decode_bucket(rows, 1024);
    EXPECT_GE(bucket, rows);
    int64_t power = 16;
    while (power < rows) power *= 2;
    EXPECT_LE(bucket, power);
    EXPECT_EQ(decode_bucket(bucket, 1024), bucket);
    buckets.insert(bucket);
  }
  EXPECT_EQ(buckets.size(), 51u);
  EXPECT_EQ(decode_bucket(5, 7), 7) << "at most the rows that there can be";
  EXPECT_EQ(decode_bucket(17, 256), 24);
}

template <typename T>
std::vector<T> array_of(const std::vector<std::byte>& bytes, size_t begin, size_t count) {
  const auto* data = reinterpret_cast<const T*>(bytes.data() + begin);
  return {data, data + count};
}

TEST(FillArrays, SaysWhereEveryRowGoes) {
  const std::vector<int32_t> ids = {5, 6, 7, -2};
  const std::vector<int32_t> first_pages = {9, 2}, second_pages = {4};
  const std::vector<BatchSequence> sequences = {
      {.first_row = 0, .num_new_tokens = 3, .num_past_tokens = 3, .page_table = first_pages},
      {.first_row = 3, .num_new_tokens = 1, .num_past_tokens = 0, .page_table = second_pages}};
  const std::vector<int32_t> logit_rows = {2, 3};
  const StepSize size = {.num_rows = 6, .num_logit_rows = 2};
  const ArrayPlan plan = plan_arrays(size);
  std::vector<std::byte> bytes(plan.num_bytes, std::byte{0xFF});
  fill_arrays({.token_ids = ids, .sequences = sequences, .logit_rows = {}}, logit_rows,
              {.page_tokens = 4}, 2, size, bytes.data());
  EXPECT_EQ(array_of<int64_t>(bytes, plan.kv_slots, 6),
            (std::vector<int64_t>{9 * 4 + 3, 2 * 4 + 0, 2 * 4 + 1, 4 * 4, -1, -1}));
  EXPECT_EQ(array_of<int32_t>(bytes, plan.token_ids, 6), (std::vector<int32_t>{5, 6, 7, -2, 0, 0}));
  EXPECT_EQ(array_of<int32_t>(bytes, plan.positions, 6), (std::vector<int32_t>{3, 4, 5, 0, 0, 0}));
  EXPECT_EQ(array_of<int32_t>(bytes, plan.position_rows, 6),
            (std::vector<int32_t>{5, 6, 7, 2, 2, 2}));
  EXPECT_EQ(array_of<int32_t>(bytes, plan.logit_rows, 2), logit_rows);
}

TEST(ArrayPlan, KeepsArraysApart) {
  for (const StepSize size : {StepSize{1, 1}, {3, 2}, {17, 17}}) {
    const ArrayPlan plan = plan_arrays(size);
    const auto M = static_cast<size_t>(size.num_rows), R = static_cast<size_t>(size.num_logit_rows);
    EXPECT_GE(plan.token_ids, plan.kv_slots + 8 * M);
    EXPECT_GE(plan.positions, plan.token_ids + 4 * M);
    EXPECT_GE(plan.position_rows, plan.positions + 4 * M);
    EXPECT_GE(plan.logit_rows, plan.position_rows + 4 * M);
    EXPECT_GE(plan.choice_slots, plan.logit_rows + 4 * R);
    EXPECT_GE(plan.num_bytes, plan.choice_slots + 4 * R);
    EXPECT_EQ(plan.choice_slots % 16, 0u);
  }
}

}  // namespace
}  // namespace halley::cuda
