#include "halley/cli/bench_gpu.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley::cli {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ParseShape, ReadsTwoSizes) {
  EXPECT_EQ(parse_shape("4096x14336", "--shape"), (std::pair<int64_t, int64_t>{4096, 14336}));
  EXPECT_EQ(parse_shape("1x16777216", "--shape"), (std::pair<int64_t, int64_t>{1, 1 << 24}));
}

TEST(ParseShape, RejectsAllElseByTheOptionsName) {
  for (const char* text : {"", "x", "1", "1x", "x1", "1x2x3", "0x1", "1x0", "-1x1", "1 x 2", "1x2 ",
                           "1X2", "1.5x2", "16777217x1", "99999999999999999999x1"}) {
    EXPECT_THAT([&] { parse_shape(text, "--decode"); },
                ThrowsMessage<InputError>(HasSubstr("--decode: expected two sizes")))
        << text;
  }
}

TEST(GpuRates, AreAnH200sUnlessDeclared) {
  GpuBenchOptions options;
  options.rates.s8 = 5;
  EXPECT_EQ(gpu_rates(options).s8, 5);
  EXPECT_EQ(gpu_rates(options).f16, kH200Rates.f16);
}

}  // namespace
}  // namespace halley::cli
