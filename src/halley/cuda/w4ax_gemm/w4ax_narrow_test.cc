#include "halley/cuda/w4ax_gemm/w4ax_narrow.h"

#include <gtest/gtest.h>

#include "halley/base/str.h"

namespace halley::cuda {
namespace {

constexpr int kSharedBytes = 232448;  // of a block of the H200

/// Calls f(narrow, M, block_rows) for all numbers of tokens and blocks of many sizes.
template <class F>
void for_many(const F& f) {
  for (int M = 1; M <= kNarrowTokens; ++M) {
    for (const int block_rows : {1, 2, 3, 4, 5, 7, 14, 28}) {
      for (const int num_chunks : {1, 16, 17, 32, 224}) {
        SCOPED_TRACE(str(M, " tokens, ", block_rows, " rows, ", num_chunks, " chunks"));
        f(w4ax_narrow_that_fits(M, block_rows, num_chunks, kSharedBytes), M, block_rows);
      }
    }
  }
}

TEST(W4axNarrow, StagesHaveRoomForTheirParts) {
  for_many([](const W4axNarrow& narrow, int M, int /*block_rows*/) {
    const MixedNarrow& shared = narrow.shared;
    EXPECT_GE(shared.inputs, shared.rows * kW4axRowBytes);
    EXPECT_GE(narrow.scales, shared.inputs + M * kW4axInputs);
    EXPECT_GE(narrow.token_scales, narrow.scales + shared.rows * 16 * 4);
    EXPECT_GE(shared.stage_bytes, narrow.token_scales + M * 4);
    EXPECT_EQ(shared.stage_bytes % kCopyLine, 0);
    EXPECT_EQ(narrow.scales % 16 + narrow.token_scales % 16, 0);
  });
}

TEST(W4axNarrow, SumsStandBehindTheRing) {
  for_many([](const W4axNarrow& narrow, int M, int /*block_rows*/) {
    const MixedNarrow& shared = narrow.shared;
    EXPECT_GE(shared.sum_pitch, shared.span * 16);
    EXPECT_GE(shared.sums, kNarrowWarps * shared.num_stages * shared.stage_bytes);
    EXPECT_GE(shared.barriers, shared.sums + kNarrowWarps * M * shared.sum_pitch * 4);
    EXPECT_EQ(shared.barriers % 8, 0);
    EXPECT_LE(shared.num_bytes, kSharedBytes);
  });
}

TEST(W4axNarrow, SpansAreWholePasses) {
  for_many([](const W4axNarrow& narrow, int /*M*/, int block_rows) {
    const MixedNarrow& shared = narrow.shared;
    EXPECT_GE(shared.rows, 1);
    EXPECT_LE(shared.rows, kNarrowRows);
    EXPECT_TRUE(shared.span == block_rows || shared.span % shared.rows == 0);
    EXPECT_GE(shared.num_stages, 1);
    EXPECT_LE(shared.num_stages, kNarrowStagesMax);
  });
}

/// Layers whose blocks have up to four rows: all at a time, two stages.
TEST(W4axNarrow, SmallLayersAreOnePassForAllTokens) {
  for (int M = 1; M <= kNarrowTokens; ++M) {
    for (int block_rows = 1; block_rows <= kNarrowRows; ++block_rows) {
      const W4axNarrow narrow = w4ax_narrow_that_fits(M, block_rows, 32, kSharedBytes);
      EXPECT_EQ(narrow.shared.rows, block_rows);
      EXPECT_EQ(narrow.shared.num_stages, 2);
    }
  }
}

}  // namespace
}  // namespace halley::cuda
