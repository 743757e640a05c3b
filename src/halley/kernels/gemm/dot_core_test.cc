// The integer cores alone: exact on every SIMD target, up to the largest accumulators they promise.
#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/kernels/gemm/dot_kernel.h"
#include "halley/kernels/gemm/pack_quads.h"
#include "halley/kernels/testing/simd_targets.h"

namespace halley {
namespace {

// Weights and slices at random, and at the ends that must not overflow.
void expect_core_is_exact(const dot_gemm::DotCore& core, int weight_max, int slice_max,
                          bool reads_u4) {
  std::mt19937 random(12);
  constexpr int64_t kPairs = dot_gemm::kSpanQuads / 2;
  alignas(64) std::array<uint8_t, 2 * kPairs * kQuadValues> quads, packed;
  for (int64_t R = 1; R <= dot_gemm::kTileSliceRows; ++R) {
    std::vector<uint32_t> words(static_cast<size_t>(2 * kPairs * core.words_per_quad * R));
    std::vector<int32_t> expected(static_cast<size_t>(R * kPanelRows), 0);
    const auto is_end = [&] { return R % 2 == 0 || random() % 2 == 0; };
    for (uint8_t& code : quads) {
      code = static_cast<uint8_t>(is_end() ? weight_max : static_cast<int>(random()) & weight_max);
    }
    for (int64_t k = 0; k < 8 * kPairs; ++k) {
      for (int64_t row = 0; row < R; ++row) {
        const int slice = is_end() ? -slice_max - 1 : static_cast<int>(random() % 128) - 64;
        const int64_t quad = k / 4, j = k % 4;
        auto* bytes = reinterpret_cast<uint8_t*>(
            &words[static_cast<size_t>((quad * core.words_per_quad) * R + row)]);
        const auto bits = static_cast<uint16_t>(slice);
        if (core.words_per_quad == 1) {
          bytes[j] = static_cast<uint8_t>(bits);
        } else {
          std::memcpy(bytes + (j % 2) * R * 4 + j / 2 * 2, &bits, sizeof(bits));
        }
        for (int64_t n = 0; n < kPanelRows; ++n) {
          expected[static_cast<size_t>(row * kPanelRows + n)] +=
              slice * quads[static_cast<size_t>(quad * kQuadValues + n * 4 + j)];
        }
      }
    }
    alignas(64) std::array<int32_t, dot_gemm::kTileSliceRows* kPanelRows> acc = {};
    // The cores for weights of 8 bits accumulate in 32.
    const int64_t flush_pairs =
        weight_max == 255 ? kPairs
                          : std::min(kPairs, 32767 / int64_t{4 * weight_max * (slice_max + 1)});
    dot_gemm::DotArgs args{quads.data(),     words.data(), kPairs, flush_pairs, acc.data(),
                           /*ahead_bytes=*/0};
    if (reads_u4) {
      pack_quads(PackedLayout::kU4Quad, quads.data(), dot_gemm::kSpanUnits,
                 reinterpret_cast<std::byte*>(packed.data()));
      args.weights = packed.data();
      (*core.multiply_u4)[static_cast<size_t>(R - 1)](args);
    } else {
      core.multiply_bytes[static_cast<size_t>(R - 1)](args);
    }
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), acc.begin())) << core.name << R;
  }
}

TEST(DotCore, IsExactOnEveryTarget) {
  for_each_simd_target([](const char* target) {
    SCOPED_TRACE(target);
    for (const bool reads_u4 : {false, true}) {
      expect_core_is_exact(dot_gemm::narrow_core(), 15, 63, reads_u4);
      expect_core_is_exact(dot_gemm::narrow_core(), 15, 127, reads_u4);
    }
    expect_core_is_exact(dot_gemm::narrow_core(), 3, 63, false);
    expect_core_is_exact(dot_gemm::narrow_core(), 7, 63, false);
    expect_core_is_exact(dot_gemm::wide_core(), 255, 127, false);
  });
}

TEST(DotCore, IsExactWithVnni) {
  if (!dot_gemm::has_avx512_vnni()) GTEST_SKIP() << "this CPU has no AVX512-VNNI";
  expect_core_is_exact(dot_gemm::vnni_core(), 15, 63, true);
  expect_core_is_exact(dot_gemm::vnni_core(), 15, 127, false);
  expect_core_is_exact(dot_gemm::vnni_core(), 255, 127, false);
}

}  // namespace
}  // namespace halley
