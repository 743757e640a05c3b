#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/cuda/ops/rope_kv.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/kernels/kv/testing/kv_reference.h"
#include "halley/kernels/norm/norm.h"
#include "halley/kernels/rope/rope.h"

namespace halley::cuda {
namespace {

struct Case {
  int64_t num_heads, num_kv_heads, head_dim, num_angles;
  bool has_norms;
  bool is_interleaved = false;
};
constexpr Case kCases[] = {{32, 8, 128, 64, false},
                           {4, 2, 64, 32, true},
                           {8, 8, 80, 16, true},
                           {6, 3, 96, 48, false},
                           {16, 8, 256, 128, true},
                           {2, 1, 64, 0, false},
                           {3, 1, 16, 8, true},
                           {5, 3, 112, 56, true},
                           // head sizes of the scalar kernel:
                           {4, 2, 72, 36, true},
                           {4, 1, 64, 12, false},
                           {3, 3, 250, 125, true},
                           // neighbouring columns, in the scalar kernel too:
                           {4, 2, 128, 32, false, true},
                           {2, 2, 24, 9, true, true}};
constexpr int64_t kPositions = 9000;
constexpr int64_t kPageTokens = 16, kNumPages = 5;
constexpr std::byte kBlank{0xA5};

class RopeKvGpuTest : public GpuTest {
 protected:
  std::vector<float> inv_freq(int64_t num_angles) const {
    std::vector<float> frequencies;
    for (int64_t i = 0; i < num_angles; ++i) {
      frequencies.push_back(static_cast<float>(
          std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(num_angles))));
    }
    return frequencies;
  }

  /// The CPU kernels' result for qkv [M, (H + 2 J) D], in f32.
  void transform_on_host(const Case& shape, const std::vector<int32_t>& positions,
                         const std::vector<float>& weight, std::vector<float>& qkv) {
    const int64_t H = shape.num_heads, J = shape.num_kv_heads, D = shape.head_dim;
    const auto M = static_cast<int64_t>(positions.size());
    const Matrix all = f32_matrix(qkv.data(), M, (H + 2 * J) * D);
    const Matrix q = all.cols(0, H * D), k = all.cols(H * D, (H + J) * D);
    if (shape.has_norms) {
      rms_norm_heads(host_, q, D, weight.data(), 1.0f, 1e-6f);
      rms_norm_heads(host_, k, D, weight.data(), 1.0f, 1e-6f);
    }
    if (shape.num_angles == 0) return;
    RopeAngles angles;
    compute_rope_angles(host_, positions, inv_freq(shape.num_angles), 1.25f, angles);
    angles.is_interleaved = shape.is_interleaved;
    apply_rope(host_, angles, H, D, q);
    apply_rope(host_, angles, J, D, k);
  }

  void check_bytes(KvDType kv_dtype, int64_t D);
};

/// Inputs and expected results of one case.
struct RopeKvRun {
  Case shape;
  KvLayerView cache;
  std::vector<int64_t> slots;
  std::vector<float> expected;    // [M, (H + 2 J) D], f32
  std::vector<float> got;         // the same, with the queries changed
  std::vector<std::byte> stored;  // the cache
  double rounding = 0;            // of the queries' type
  std::string what;

  int64_t num_columns() const {
    return (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  }
  KvRow row(int64_t slot, int64_t kv_row) {
    const size_t page = static_cast<size_t>(slot / kPageTokens) * cache.layout.page_bytes();
    return cache.layout.key_row(stored.data() + page, kv_row, slot % kPageTokens);
  }
};

/// Half a quantization step of the type, plus earlier roundings. A row's range is at most twice its
/// largest magnitude.
double kv_tolerance(KvDType dtype, const float* values, int64_t size) {
  float largest = 0;
  for (int64_t i = 0; i < size; ++i) largest = std::max(largest, std::abs(values[i]));
  const double steps = dtype == KvDType::kInt4      ? 7.5
                       : dtype == KvDType::kInt8    ? 127.5
                       : dtype == KvDType::kFp8E4M3 ? 8
                       : dtype == KvDType::kBf16    ? 128
                                                    : 1024;
  return 0.51 * double{largest} / steps + 1e-5;
}

void check_rows(RopeKvRun& run) {
  const int64_t H = run.shape.num_heads, J = run.shape.num_kv_heads, D = run.shape.head_dim;
  std::vector<bool> is_written(static_cast<size_t>(kNumPages * kPageTokens));
  for (size_t m = 0; m < run.slots.size(); ++m) {
    const size_t begin = m * static_cast<size_t>(run.num_columns());
    const float* right = run.expected.data() + begin;
    for (int64_t i = 0; i < H * D; ++i) {
      ASSERT_NEAR(run.got[begin + static_cast<size_t>(i)], right[i],
                  run.rounding * std::max(1.0f, std::abs(right[i])))
          << run.what << ", query of row " << m << " at " << i;
    }
    const int64_t slot = run.slots[m];
    if (slot < 0) continue;
    is_written[static_cast<size_t>(slot)] = true;
    for (int64_t kv_row = 0; kv_row < 2 * J; ++kv_row) {
      const KvRow row = run.row(slot, kv_row);
      const float* values = right + (H + kv_row) * D;
      const double tolerance = kv_tolerance(run.cache.layout.dtype, values, D);
      for (int64_t i = 0; i < D; ++i) {
        ASSERT_NEAR(kv_element(run.cache.layout.dtype, row.data, row.scale, i), values[i],
                    tolerance)
            << run.what << ", kv row " << kv_row << " of row " << m << " at " << i;
      }
    }
  }
  for (int64_t slot = 0; slot < kNumPages * kPageTokens; ++slot) {
    if (is_written[static_cast<size_t>(slot)]) continue;
    for (int64_t kv_row = 0; kv_row < 2 * J; ++kv_row) {
      const KvRow row = run.row(slot, kv_row);
      for (size_t i = 0; i < run.cache.layout.row_bytes(); ++i) {
        ASSERT_EQ(row.data[i], kBlank) << run.what << ", slot " << slot;
      }
    }
  }
}

TEST_F(RopeKvGpuTest, RotatesAndStoresAsTheHostDoesInEveryTypeOfTheCache) {
  std::mt19937 random(11);
  constexpr int64_t M = 37;
  std::vector<int32_t> positions;
  std::vector<int64_t> slots;  // all different; negative for some rows
  for (int64_t m = 0; m < M; ++m) {
    positions.push_back(static_cast<int32_t>(random() % kPositions));
    slots.push_back(m % 9 == 4 ? -1 : (m * 29) % (kNumPages * kPageTokens));
  }
  const DeviceArray<int64_t> device_slots(slots);
  for (const Case& shape : kCases) {
    const int64_t D = shape.head_dim, num_angles = shape.num_angles;
    std::vector<float> weight(static_cast<size_t>(D));
    for (float& value : weight) value = 0.25f * static_cast<float>(random() % 5);
    const DeviceArray<float> device_weight(weight);
    DeviceMatrix cos(DType::kF32, M, num_angles, 0), sin(DType::kF32, M, num_angles, 0);
    if (num_angles > 0) {
      RopeAngles angles;
      compute_rope_angles(host_, positions, inv_freq(num_angles), 1.25f, angles);
      cos.set(angles.cos);
      sin.set(angles.sin);
    }
    RopeKvParams params = {.num_heads = shape.num_heads,
                           .weight_offset = 1.0f,
                           .epsilon = 1e-6f,
                           .cos = cos.matrix().row<float>(0),
                           .sin = sin.matrix().row<float>(0),
                           .num_angles = num_angles,
                           .is_interleaved = shape.is_interleaved,
                           .kv_slots = device_slots.data()};
    if (shape.has_norms) params.q_norm = params.k_norm = device_weight.data();
    for (const DType dtype : {DType::kF16, DType::kBf16}) {
      for (const KvDType kv_dtype : all_kv_dtypes()) {
        RopeKvRun run = {.shape = shape,
                         .cache = {.layout = {.dtype = kv_dtype,
                                              .num_kv_heads = shape.num_kv_heads,
                                              .head_dim = D,
                                              .page_tokens = kPageTokens},
                                   .num_pages = kNumPages},
                         .slots = slots,
                         .expected = {},
                         .got = {},
                         .stored = {},
                         .rounding = dtype == DType::kF16 ? 1e-3 : 8e-3,
                         .what = str(name_of(dtype), ", ", kv_dtype, ", D ", D)};
        DeviceMatrix qkv(dtype, M, run.num_columns());
        qkv.fill_normal(static_cast<uint32_t>(D), 2.0f);
        run.expected = qkv.get(stream_);
        transform_on_host(shape, positions, weight, run.expected);
        run.stored.assign(kNumPages * run.cache.layout.page_bytes(), kBlank);
        const DeviceArray<std::byte> pages(run.stored);
        run.cache.pages = pages.data();
        rope_and_write_kv(context_, params, run.cache, qkv.matrix());
        run.got = qkv.get(stream_);
        EXPECT_TRUE(qkv.guards_are_intact(stream_)) << run.what;
        check_cuda(
            cudaMemcpy(run.stored.data(), pages.data(), run.stored.size(), cudaMemcpyDeviceToHost),
            "copy to the host");
        check_rows(run);
      }
    }
  }
}

/// Unaligned angles take the scalar kernel.
TEST_F(RopeKvGpuTest, Vec8AndScalarKernelsGiveTheSameBits) {
  constexpr int64_t H = 32, J = 8, D = 128, kPages = 90;
  const auto shifted = [](std::vector<float> values, int count) {
    values.insert(values.begin(), static_cast<size_t>(count), 0.0f);
    return values;
  };
  for (const int64_t M : {1, 1400}) {  // many CTAs a row, and one
    std::vector<int32_t> positions;
    std::vector<int64_t> slots;
    for (int64_t m = 0; m < M; ++m) {
      positions.push_back(static_cast<int32_t>(m * 5));
      slots.push_back(m % 100 == 7 ? -1 : kPages * kPageTokens - 1 - m);
    }
    const DeviceArray<int64_t> device_slots(slots);
    RopeAngles angles;
    compute_rope_angles(host_, positions, inv_freq(D / 2), 1.0f, angles);
    for (const KvDType kv_dtype : all_kv_dtypes()) {
      std::vector<float> queries[2];
      std::vector<std::byte> stored[2];
      for (const int shift : {0, 1}) {
        const DeviceArray<float> cos(shifted(angles.cos, shift)), sin(shifted(angles.sin, shift));
        KvLayerView cache = {.layout = {.dtype = kv_dtype,
                                        .num_kv_heads = J,
                                        .head_dim = D,
                                        .page_tokens = kPageTokens},
                             .num_pages = kPages};
        stored[shift].assign(kPages * cache.layout.page_bytes(), kBlank);
        const DeviceArray<std::byte> pages(stored[shift]);
        cache.pages = pages.data();
        DeviceMatrix qkv(DType::kF16, M, (H + 2 * J) * D);
        qkv.fill_normal(3, 2.0f);
        rope_and_write_kv(context_,
                          {.num_heads = H,
                           .cos = cos.data() + shift,
                           .sin = sin.data() + shift,
                           .num_angles = D / 2,
                           .kv_slots = device_slots.data()},
                          cache, qkv.matrix());
        queries[shift] = qkv.get(stream_);
        EXPECT_TRUE(qkv.guards_are_intact(stream_)) << kv_dtype;
        check_cuda(cudaMemcpy(stored[shift].data(), pages.data(), stored[shift].size(),
                              cudaMemcpyDeviceToHost),
                   "copy to the host");
      }
      EXPECT_TRUE(queries[0] == queries[1]) << kv_dtype << ", M " << M;
      EXPECT_TRUE(stored[0] == stored[1]) << kv_dtype << ", M " << M;
    }
  }
}

void RopeKvGpuTest::check_bytes(KvDType kv_dtype, int64_t D) {
  constexpr int64_t J = 2, M = 64;
  DeviceMatrix qkv(DType::kF16, M, (1 + 2 * J) * D);
  qkv.fill_normal(21, 3.0f, 0.5f);
  std::vector<float> values = qkv.get(stream_);
  values[(1 + 0) * D + 5] = NAN;                                    // row 0, the first key
  values[static_cast<size_t>((1 + 2 * J) * D) + 2 * D] = INFINITY;  // row 1, the second key
  for (int64_t i = 0; i < D; ++i) {  // row 2: the first key is constant
    values[static_cast<size_t>(2 * (1 + 2 * J) * D + D + i)] = 0.25f;
  }
  qkv.set(values);
  KvLayerView cache = {
      .layout = {.dtype = kv_dtype, .num_kv_heads = J, .head_dim = D, .page_tokens = M},
      .num_pages = 1,
      .scales = {.k = 0, .v = 0.01f}};
  const std::vector<std::byte> blank(cache.layout.page_bytes(), std::byte{0});
  const DeviceArray<std::byte> pages(blank);
  cache.pages = pages.data();
  std::vector<int64_t> slots(M);
  for (size_t m = 0; m < slots.size(); ++m) slots[m] = static_cast<int64_t>(m);
  const DeviceArray<int64_t> device_slots(slots);
  rope_and_write_kv(context_, {.num_heads = 1, .kv_slots = device_slots.data()}, cache,
                    qkv.matrix());
  stream_.synchronize();
  std::vector<std::byte> got(blank.size()), expected = blank;
  check_cuda(cudaMemcpy(got.data(), pages.data(), got.size(), cudaMemcpyDeviceToHost),
             "copy to the host");
  KvLayerView host_cache = cache;
  host_cache.pages = expected.data();
  const std::vector<int32_t> page_table = {0};
  const BatchSequence sequence = {
      .first_row = 0, .num_new_tokens = M, .num_past_tokens = 0, .page_table = page_table};
  const Matrix all = f32_matrix(values.data(), M, (1 + 2 * J) * D);
  write_kv(host_, host_cache, {&sequence, 1}, all.cols(D, (1 + J) * D),
           all.cols((1 + J) * D, (1 + 2 * J) * D));
  for (int64_t slot = 2; slot < M; ++slot) {  // rows with NaN may hold anything
    for (int64_t head = 0; head < 2 * J; ++head) {
      const KvRow right = cache.layout.key_row(expected.data(), head, slot);
      const KvRow row = cache.layout.key_row(got.data(), head, slot);
      EXPECT_EQ(std::memcmp(row.data, right.data, cache.layout.row_bytes()), 0) << kv_dtype;
      if (right.scale != nullptr) {
        EXPECT_EQ(std::memcmp(row.scale, right.scale, 4), 0) << kv_dtype;
      }
    }
  }
  const KvRow broken = cache.layout.key_row(got.data(), 0, 0);
  EXPECT_TRUE(std::isnan(kv_element(kv_dtype, broken.data, broken.scale, 5))) << kv_dtype;
  const KvRow flat = cache.layout.key_row(got.data(), 0, 2);
  // Exact except for e4m3, where it is 448 times 0.25 / 448, rounded to f32.
  const double error_max = kv_dtype == KvDType::kFp8E4M3 ? 0x1p-26 : 0.0;
  EXPECT_NEAR(kv_element(kv_dtype, flat.data, flat.scale, 7), 0.25, error_max) << kv_dtype;
}

/// With equal inputs the device writes the same bytes as the host kernel.
TEST_F(RopeKvGpuTest, QuantizedRowsAreTheHostsByteForByte) {
  for (const KvDType kv_dtype : all_kv_dtypes()) {
    for (const int64_t D : {96, 128, 120})
      check_bytes(kv_dtype, D);  // the last one takes the scalar kernel
  }
}

}  // namespace
}  // namespace halley::cuda
