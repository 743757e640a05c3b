#include "halley/cuda/gemm/streamed_settings.h"

#include <gtest/gtest.h>

#include "halley/cuda/tuning/tuned_plans.h"

namespace halley::cuda {
namespace {

constexpr StreamedDevice kDevice = {};

TEST(StreamedSettings, GiveTheChoiceThatTheyAreOf) {
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF8E4M3, DType::kI8}) {
    for (const int64_t M : {1, 17, 64}) {
      const StreamedShape shape = {.dtype = dtype, .M = M, .N = 6144, .K = 4096};
      const int split = choose_streamed(shape, kDevice).split;
      const auto choices = streamed_choices(shape, kDevice, split);
      EXPECT_GT(choices.size(), 5U);
      for (const StreamedChoice& choice : choices) {
        EXPECT_EQ(choice.split, split);
        const auto read = streamed_choice_of(shape, kDevice, split, settings_of(choice));
        ASSERT_TRUE(read);
        EXPECT_EQ(streamed_plan_of(shape, kDevice, *read),
                  streamed_plan_of(shape, kDevice, choice));
      }
    }
  }
}

TEST(StreamedSettings, OfWhatCannotBeGiveNoChoice) {
  const StreamedShape shape = {.dtype = DType::kF8E4M3, .M = 16, .N = 6144, .K = 4096};
  const int split = choose_streamed(shape, kDevice).split;
  const PlanSettings usual = settings_of(choose_streamed(shape, kDevice));
  ASSERT_TRUE(streamed_choice_of(shape, kDevice, split, usual));
  const auto with = [&](const char* name, int64_t value) {
    PlanSettings settings = usual;
    settings[name] = value;
    return streamed_choice_of(shape, kDevice, split, settings).has_value();
  };
  EXPECT_FALSE(with("warpgroups", 3));
  EXPECT_FALSE(with("rounds", 0));
  EXPECT_FALSE(with("rounds", 1 << 30));
  EXPECT_FALSE(with("stage_chunks", 1)) << "FP8 adds pairs of chunks";
  EXPECT_FALSE(with("stage_chunks", 1 << 30));
  EXPECT_FALSE(with("shared_bytes", 1024));
  EXPECT_FALSE(with("colour", 1));
  EXPECT_FALSE(streamed_choice_of(shape, kDevice, split, {}));
}

TEST(StreamedSettings, GemmsAreReadAsTheyAreNamed) {
  const StreamedShape shape = {.dtype = DType::kI8, .M = 16, .N = 6144, .K = 4096};
  const auto read = streamed_shape_of(tuned_gemm_of(shape), 8);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->dtype, DType::kI8);
  EXPECT_EQ(read->M, 8);
  EXPECT_FALSE(streamed_shape_of(tuned_gemm_of(shape), kStreamedRowsMax + 1));
  EXPECT_FALSE(streamed_shape_of({.kernel = "streamed_s8", .N = 6144, .K = 4100}, 8));
  EXPECT_FALSE(streamed_shape_of({.kernel = "w4ax", .N = 6144, .K = 4096}, 8));
  StreamedShape gated = shape;
  gated.is_gated = true;
  EXPECT_NE(tuned_gemm_of(gated), tuned_gemm_of(shape));
}

/// The split stays: the bits of a row depend on it.
TEST(StreamedSettings, OfTheTableDecideAllButTheSplit) {
  for (const int64_t N : {4096, 6144, 28672}) {
    const StreamedShape shape = {.dtype = DType::kF16, .M = 16, .N = N, .K = 4096};
    const StreamedChoice by_rule = choose_streamed(shape, kDevice);
    for (const StreamedChoice& choice : streamed_choices(shape, kDevice, by_rule.split)) {
      set_tuned_plans({"a GPU",
                       kDevice.num_sms,
                       {{.gemm = tuned_gemm_of(shape),
                         .rows = 16,
                         .settings = settings_of(choice),
                         .microseconds = 1}}});
      EXPECT_EQ(settings_of(choose_streamed(shape, kDevice)), settings_of(choice));
      EXPECT_EQ(choose_streamed(shape, kDevice).split, by_rule.split);
    }
    set_tuned_plans({});
  }
}

}  // namespace
}  // namespace halley::cuda
