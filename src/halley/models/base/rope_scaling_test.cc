// Frequencies against values that transformers 5.17 prints for the same parameters (head_dim 8),
// and what is rejected. Whole models with each type are in models/all/option_parity_test.cc.
#include "halley/models/base/rope_scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;
using testing::StartsWith;
using testing::ThrowsMessage;

constexpr float kTolerance = 2e-7f;  // one rounding to f32, of the reference or ours

RopeContext context_of(int64_t max_length = 128) {
  return {.where = "config.json",
          .head_dim = 8,
          .max_position_embeddings = 128,
          .max_length = max_length};
}

MATCHER_P(NearRelative, tolerance, "") {
  const float a = std::get<0>(arg), b = std::get<1>(arg);
  return std::abs(a - b) <= tolerance * std::abs(b);
}

void expect_rope(const RopeSpec& rope, const std::vector<float>& frequencies, float factor) {
  EXPECT_THAT(rope.inv_freq, Pointwise(NearRelative(kTolerance), frequencies));
  EXPECT_FLOAT_EQ(rope.attention_factor, factor);
}

TEST(RopeScaling, LinearIsTheReferences) {
  RopeConfig rope;
  rope.type = "linear";
  rope.factor = 4;
  expect_rope(make_rope(rope, context_of()),
              {0.25f, 0.0250000004f, 0.00249999994f, 0.000250000012f}, 1.0f);
}

TEST(RopeScaling, DynamicIsTheReferences) {
  RopeConfig rope;
  rope.type = "dynamic";
  rope.factor = 4;
  expect_rope(make_rope(rope, context_of(512)),
              {1.0f, 0.0425290354f, 0.00180871889f, 7.69230755e-05f}, 1.0f);
}

TEST(RopeScaling, Llama3IsTheReferences) {
  RopeConfig rope;
  rope.type = "llama3";
  rope.theta = 500000;
  rope.factor = 8;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_max_position_embeddings = 32;
  expect_rope(make_rope(rope, context_of()),
              {1.0f, 0.00470075384f, 0.000176776681f, 6.64786967e-06f}, 1.0f);
}

TEST(RopeScaling, YarnIsTheReferences) {
  RopeConfig rope;
  rope.type = "yarn";
  rope.factor = 4;
  rope.original_max_position_embeddings = 32;
  expect_rope(make_rope(rope, context_of()), {1.0f, 0.0250000004f, 0.00249999994f, 0.000250000012f},
              1.13862944f);
}

TEST(RopeScaling, YarnWithMscaleIsTheReferences) {
  RopeConfig rope;
  rope.type = "yarn";
  rope.factor = 8;
  rope.original_max_position_embeddings = 16;
  rope.mscale = 0.7;
  rope.mscale_all_dim = 0.4;
  rope.truncate = false;
  expect_rope(make_rope(rope, context_of()), {1.0f, 0.0125000002f, 0.00124999997f, 0.000125000006f},
              1.05759281f);
}

TEST(RopeScaling, LongropeIsTheReferences) {
  RopeConfig rope;
  rope.type = "longrope";
  rope.factor = 4;
  rope.original_max_position_embeddings = 32;
  rope.short_factor = {1.0, 1.1, 1.2, 1.3};
  rope.long_factor = {1.5, 2.0, 4.0, 8.0};
  expect_rope(make_rope(rope, context_of(128)),
              {0.666666687f, 0.0500000007f, 0.00249999994f, 0.000125000006f}, 1.18321596f);
}

TEST(RopeScaling, DynamicIsPlainWithinTheTrainedLength) {
  const RopeConfig plain;
  RopeConfig dynamic;
  dynamic.type = "dynamic";
  dynamic.factor = 4;
  EXPECT_EQ(make_rope(dynamic, context_of(100)).inv_freq, make_rope(plain, context_of()).inv_freq);
  EXPECT_NE(make_rope(dynamic, context_of(256)).inv_freq, make_rope(plain, context_of()).inv_freq);
}

TEST(RopeScaling, LongropeTakesLongFactorsBeyondTheTrainedLength) {
  RopeConfig rope;
  rope.type = "longrope";
  rope.original_max_position_embeddings = 64;
  rope.short_factor = {1, 1, 1, 1};
  rope.long_factor = {2, 2, 2, 2};
  EXPECT_FLOAT_EQ(make_rope(rope, context_of(64)).inv_freq[0], 1.0f);
  EXPECT_FLOAT_EQ(make_rope(rope, context_of(65)).inv_freq[0], 0.5f);
}

TEST(RopeScaling, RejectsWhatItDoesNotKnow) {
  RopeConfig rope;
  rope.type = "mrope";
  EXPECT_THAT([&] { make_rope(rope, context_of()); },
              ThrowsMessage<UnsupportedError>(StartsWith(
                  "config.json: rope_type: expected one of default, linear, dynamic, yarn, "
                  "longrope, llama3, got \"mrope\".")));
}

TEST(RopeScaling, RejectsValuesThatGiveNoFrequencies) {
  RopeConfig rope;
  rope.theta = 1e-300;
  EXPECT_THAT([&] { make_rope(rope, context_of()); },
              ThrowsMessage<InputError>(HasSubstr("rotary field 'rope_theta'")));
  rope = {};
  rope.partial_rotary_factor = 0.4;  // 3.2 columns
  EXPECT_THAT([&] { make_rope(rope, context_of()); },
              ThrowsMessage<InputError>(HasSubstr("expected an even number of rotary columns")));
  rope = {};
  rope.type = "llama3";
  rope.high_freq_factor = 1;
  EXPECT_THAT([&] { make_rope(rope, context_of()); },
              ThrowsMessage<InputError>(
                  HasSubstr("'high_freq_factor': expected more than low_freq_factor 1, got 1")));
  rope = {};
  rope.type = "yarn";
  rope.theta = 1;
  EXPECT_THAT([&] { make_rope(rope, context_of()); },
              ThrowsMessage<InputError>(HasSubstr("yarn: expected more than 1, got 1")));
  rope = {};
  rope.type = "yarn";
  rope.attention_factor = -2;
  EXPECT_THAT([&] { make_rope(rope, context_of()); },
              ThrowsMessage<InputError>(HasSubstr("'attention_factor': expected a positive")));
  rope = {};
  rope.type = "longrope";
  rope.short_factor = {1, 1};
  EXPECT_THAT([&] { make_rope(rope, context_of(10)); },
              ThrowsMessage<InputError>(HasSubstr(
                  "'short_factor': expected 4 numbers (half the rotary columns), got 2")));
}

}  // namespace
}  // namespace halley
