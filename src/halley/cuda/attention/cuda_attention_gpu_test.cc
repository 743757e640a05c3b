#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "halley/core/float16.h"
#include "halley/cuda/attention/attention_plan.h"
#include "halley/cuda/attention/cuda_attention.h"
#include "halley/cuda/attention/testing/attention_test_batch.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/device_matrix.h"

namespace halley {
namespace {

// Outputs have size 1 and are rounded to the output's type. Softmax weights are rounded to the
// operand type before P V: 2^-12 (f16) or 2^-9 (bf16) of accumulators of size 1 to 3; queries
// likewise, in scores of size 1 to 5. A cache of bf16 has bf16 operands, whatever the output's type
// is.
constexpr double kF16Tolerance = 4e-3;
constexpr double kBf16OperandTolerance = 1.2e-2;
constexpr double kBf16Tolerance = 3e-2;

// Prefill rounds dequantized values to f16, and the scales of fp8 too.
constexpr double kDequantizedTolerance = 7e-3;

double tolerance(KvDType cache_dtype, bool is_bf16) {
  if (is_bf16) return kBf16Tolerance;
  if (has_scales(cache_dtype)) return kDequantizedTolerance;
  return cache_dtype == KvDType::kBf16 ? kBf16OperandTolerance : kF16Tolerance;
}

const KvDType kTypes[] = {KvDType::kF16, KvDType::kBf16, KvDType::kFp8E4M3, KvDType::kInt8,
                          KvDType::kInt4};

// A test batch with its cache, queries and outputs on the GPU.
class OnDevice {
 public:
  /// `num_sms`: of the plan; 0: a row's splits follow from its positions.
  OnDevice(const AttentionCase& shape, bool is_bf16, uint32_t seed, int num_sms = 0)
      : batch(shape, is_bf16, seed),
        num_sms_(num_sms),
        is_bf16_(is_bf16),
        pages_(batch.pages()),
        q_(dtype(), std::max<int64_t>(1, batch.num_rows()), batch.num_columns()),
        work_(limits()) {
    if (batch.num_rows() > 0) q_.set(batch.q());
  }

  CudaAttentionLimits limits() const {
    CudaAttentionLimits limits;
    const std::vector<BatchSequence> sequences = batch.sequences();
    limits.num_sequences = std::max<int64_t>(1, static_cast<int64_t>(sequences.size()));
    limits.num_tokens = 1;
    for (const BatchSequence& sequence : sequences) {
      limits.num_tokens += sequence.num_past_tokens + sequence.num_new_tokens;
    }
    limits.num_new_tokens = std::max<int64_t>(1, batch.num_rows());
    limits.pages_per_sequence = batch.table_stride();
    limits.num_heads = batch.problem().num_heads;
    limits.num_kv_heads = batch.layout().num_kv_heads;
    limits.head_dim = batch.layout().head_dim;
    limits.num_sms = num_sms_;
    return limits;
  }
  /// How a plan for these SMs cuts all sequences.
  DecodeSplit split() const {
    const AttentionProblem problem = batch.problem();
    const KvPageLayout& layout = batch.layout();
    const int64_t units = num_decode_units(problem.num_heads, layout.num_kv_heads, layout.head_dim);
    return choose_decode_split(problem, units,
                               static_cast<int64_t>(layout.token_bytes()) / layout.num_kv_heads,
                               2 * num_sms_, batch.sequences());
  }

  KvLayerView cache() { return {batch.layout(), pages_.data(), batch.cache().num_pages}; }
  void update(const std::vector<BatchSequence>& sequences) {
    work_.update(stream, batch.problem(), batch.layout(), batch.cache().num_pages, sequences);
  }
  void launch(DeviceMatrix& out) {
    const CudaContext context{device, stream, arena};
    cuda_decode_attention(context, batch.problem(), cache(), work_, q_.matrix(), out.matrix());
    cuda_prefill_attention(context, batch.problem(), cache(), work_, q_.matrix(), out.matrix());
  }
  void launch_decode(DeviceMatrix& out) {
    const CudaContext context{device, stream, arena};
    cuda_decode_attention(context, batch.problem(), cache(), work_, q_.matrix(), out.matrix());
  }
  DeviceMatrix blank_output() const {
    return {dtype(), std::max<int64_t>(1, batch.num_rows()), batch.num_columns()};
  }
  // Runs the sequences; rows of others stay NaN.
  std::vector<float> run(const std::vector<BatchSequence>& sequences) {
    update(sequences);
    DeviceMatrix out = blank_output();
    launch(out);
    const std::vector<float> result = out.get(stream);
    EXPECT_TRUE(out.guards_are_intact(stream));
    return result;
  }
  void send_pages() { copy_to_device(pages_.data(), batch.pages().data(), batch.pages().size()); }

  CudaDeviceInfo device = use_cuda_device(0);
  CudaStream stream;
  DeviceArena arena{1 << 16, "workspace"};
  AttentionTestBatch batch;

 private:
  DType dtype() const { return is_bf16_ ? DType::kBf16 : DType::kF16; }

  int num_sms_;
  bool is_bf16_;
  DeviceArray<std::byte> pages_;
  DeviceMatrix q_;
  CudaAttentionBatch work_;
};

// Infinite if exactly one of two elements is NaN.
double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return std::numeric_limits<double>::infinity();
    if (!std::isnan(a[i])) {
      largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    }
  }
  return largest;
}

bool has_same_bits(const std::vector<float>& a, const std::vector<float>& b, size_t begin,
                   size_t end) {
  return std::memcmp(a.data() + begin, b.data() + begin, (end - begin) * sizeof(float)) == 0;
}

void expect_reference(OnDevice& on_device, const AttentionCase& shape, bool is_bf16) {
  if (on_device.batch.num_rows() == 0) {
    on_device.run({});
    return;
  }
  const std::vector<float> expected = on_device.batch.expected();
  const std::vector<float> out = on_device.run(on_device.batch.sequences());
  EXPECT_LE(largest_difference(out, expected), tolerance(shape.dtype, is_bf16))
      << shape.name << " " << shape.dtype << (is_bf16 ? " bf16 " : " f16 ");
  // Launches again, over the counters that the first launch left.
  EXPECT_TRUE(has_same_bits(out, on_device.run(on_device.batch.sequences()), 0, out.size()))
      << shape.name << " " << shape.dtype;
}

void expect_reference(const AttentionCase& shape, bool is_bf16, uint32_t seed) {
  OnDevice on_device(shape, is_bf16, seed);
  expect_reference(on_device, shape, is_bf16);
}

TEST(CudaAttention, AgreesWithTheReferenceForEveryTypeOfTheCache) {
  uint32_t seed = 1;
  for (AttentionCase shape : attention_test_cases()) {
    if (shape.head_dim % 8 != 0) continue;
    for (const KvDType dtype : kTypes) {
      shape.dtype = dtype;
      for (const bool is_bf16 : {false, true}) expect_reference(shape, is_bf16, seed++);
    }
  }
}

// Every sequence is a decode, with lengths around tiles, splits and their multiples.
TEST(CudaAttention, DecodesOfAllLengthsAgreeWithTheReference) {
  const std::vector<AttentionCase> shapes = {
      {"llama",
       8,
       2,
       128,
       16,
       KvDType::kF16,
       0,
       0,
       {{0, 1},
        {14, 1},
        {15, 1},
        {16, 1},
        {31, 1},
        {32, 1},
        {127, 1},
        {128, 1},
        {129, 1},
        {1023, 1},
        {1024, 1},
        {1500, 1},
        {2047, 1},
        {2048, 1},
        {5000, 1}}},
      {"long", 4, 1, 128, 64, KvDType::kF16, 0, 0, {{20000, 1}, {17, 1}, {33000, 1}}},
      {"head of 64", 4, 1, 64, 128, KvDType::kF16, 0, 0, {{3000, 1}, {400, 1}}},
      {"head of 80", 6, 3, 80, 16, KvDType::kF16, 0, 0, {{700, 1}, {70, 1}}},
      {"head of 96", 4, 2, 96, 32, KvDType::kF16, 0, 0, {{1700, 1}, {70, 1}}},
      {"head of 256", 8, 4, 256, 16, KvDType::kF16, 0, 50.0f, {{2500, 1}, {70, 1}}},
      {"20 heads of a kv head", 40, 2, 64, 16, KvDType::kF16, 0, 0, {{2500, 1}, {70, 1}}},
      {"one head of a kv head", 8, 8, 128, 16, KvDType::kF16, 0, 0, {{2500, 1}, {70, 1}}},
      {"8 heads of a kv head", 16, 2, 128, 32, KvDType::kF16, 0, 0, {{2500, 1}, {70, 1}}},
      {"12 heads of a kv head", 24, 2, 128, 16, KvDType::kF16, 0, 0, {{2500, 1}, {70, 1}}},
      {"20 heads of 96 of a kv head", 20, 1, 96, 16, KvDType::kF16, 0, 9.0f, {{900, 1}, {70, 1}}},
      {"window", 8, 2, 128, 16, KvDType::kF16, 1000, 0, {{5000, 1}, {999, 1}, {1000, 1}, {70, 1}}},
      {"window and cap", 8, 2, 128, 24, KvDType::kF16, 1025, 3.0f, {{5000, 1}, {1100, 1}}},
  };
  uint32_t seed = 100;
  for (AttentionCase shape : shapes) {
    for (const KvDType dtype : kTypes) {
      shape.dtype = dtype;
      expect_reference(shape, dtype == KvDType::kBf16, seed++);
    }
  }
}

// More than two work items a CTA: CTAs take them from the counter, copies run ahead into the next
// item, and splits are combined while it is computed.
TEST(CudaAttention, ManyWorkItemsOfACtaAgreeWithTheReference) {
  AttentionCase shape{"crowd", 16, 8, 128, 16, KvDType::kF16, 0, 0, {}};
  for (int64_t i = 0; i < 90; ++i) shape.sequences.push_back({i * 37 % 701 + i % 3 * 200, 1});
  uint32_t seed = 150;
  for (const int64_t window : {0, 100}) {
    for (const KvDType dtype : {KvDType::kF16, KvDType::kInt4}) {
      shape.window = window;
      shape.dtype = dtype;
      expect_reference(shape, false, seed++);
    }
  }
}

// Each warp takes work items of its own, more than two of them, and with long sequences splits.
class WarpAttention : public testing::TestWithParam<KvDType> {};

TEST_P(WarpAttention, AgreesWithTheReference) {
  struct Heads {
    int64_t num_heads, num_kv_heads, head_dim, window;
    int num_sms;  // of the plan with long sequences
  };
  const KvDType dtype = GetParam();
  const bool is_bf16 = dtype == KvDType::kBf16;
  uint32_t seed = 170;
  for (const auto& [num_heads, num_kv_heads, head_dim, window, num_sms] :
       {Heads{8, 4, 128, 0, 30}, Heads{8, 8, 64, 100, 60}, Heads{4, 4, 80, 0, 30},
        Heads{2, 2, 256, 0, 15}, Heads{18, 2, 128, 0, 15}}) {
    AttentionCase shape{"crowd", num_heads, num_kv_heads, head_dim, 16, dtype, window, 0, {}};
    for (int64_t i = 0; i < 300; ++i) shape.sequences.push_back({i * 37 % 129, 1});
    OnDevice whole(shape, is_bf16, seed++, 1);
    EXPECT_TRUE(whole.split().is_warp_per_item) << head_dim;
    expect_reference(whole, shape, is_bf16);
    for (const int64_t past : {4000, 8000}) shape.sequences.push_back({past, 1});
    OnDevice cut(shape, is_bf16, seed++, num_sms);
    EXPECT_TRUE(cut.split().is_warp_per_item) << head_dim;
    EXPECT_LT(cut.split().tokens, 4000) << head_dim;
    expect_reference(cut, shape, is_bf16);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, WarpAttention, testing::ValuesIn(kTypes),
                         [](const auto& tested) { return name_of(tested.param); });

TEST(CudaAttention, ChunksBehindAPastAgreeWithTheReference) {
  const std::vector<AttentionCase> shapes = {
      {"llama", 8, 2, 128, 16, KvDType::kF16, 0, 0, {{0, 130}, {500, 67}, {3, 2}, {900, 1}}},
      {"head of 64", 14, 2, 64, 16, KvDType::kF16, 0, 0, {{0, 200}, {63, 65}}},
      {"head of 80", 3, 3, 80, 48, KvDType::kF16, 0, 0, {{0, 130}, {64, 64}}},
      {"head of 256", 4, 2, 256, 16, KvDType::kF16, 40, 50.0f, {{0, 100}, {300, 70}}},
      {"window", 8, 2, 128, 16, KvDType::kF16, 100, 0, {{0, 300}, {800, 90}}},
  };
  uint32_t seed = 200;
  for (AttentionCase shape : shapes) {
    for (const KvDType dtype : kTypes) {
      shape.dtype = dtype;
      for (const bool is_bf16 : {false, true}) expect_reference(shape, is_bf16, seed++);
    }
  }
}

// Special cases of the prefill kernel: tiles of 128 positions at odd lengths, pages around them,
// groups that do not divide its rows, heads that do not fill its columns.
TEST(CudaAttention, PrefillsOfSixteenBitCachesAgreeWithTheReference) {
  const std::vector<AttentionCase> shapes = {
      {"one tile", 4, 1, 128, 16, KvDType::kF16, 0, 0, {{0, 2}, {0, 31}, {0, 32}, {0, 33}}},
      {"tile ends", 4, 1, 128, 32, KvDType::kF16, 0, 0, {{126, 2}, {127, 2}, {128, 3}, {253, 5}}},
      {"many tiles", 8, 2, 128, 128, KvDType::kF16, 0, 0, {{901, 77}, {0, 259}}},
      {"page of 3", 4, 2, 128, 3, KvDType::kF16, 0, 0, {{200, 61}}},
      {"one head of a kv head", 2, 2, 128, 16, KvDType::kF16, 0, 0, {{130, 129}, {0, 300}}},
      {"7 heads of a kv head", 14, 2, 64, 64, KvDType::kF16, 0, 0, {{257, 60}, {5, 130}}},
      {"20 heads of a kv head", 20, 1, 64, 16, KvDType::kF16, 0, 0, {{200, 41}}},
      {"head of 40", 6, 3, 40, 16, KvDType::kF16, 0, 0, {{0, 150}, {200, 20}}},
      {"head of 72", 4, 2, 72, 16, KvDType::kF16, 0, 0, {{0, 150}, {200, 20}}},
      {"head of 96", 4, 2, 96, 16, KvDType::kF16, 0, 0, {{100, 150}}},
      {"window of a tile", 8, 2, 128, 16, KvDType::kF16, 128, 0, {{0, 300}, {700, 90}}},
      {"small window", 8, 2, 64, 16, KvDType::kF16, 5, 0, {{0, 200}, {511, 90}}},
      {"cap", 8, 2, 128, 16, KvDType::kF16, 0, 3.0f, {{0, 140}, {300, 50}}},
      {"window and cap", 8, 2, 64, 16, KvDType::kF16, 200, 20.0f, {{600, 150}}},
  };
  uint32_t seed = 700;
  for (AttentionCase shape : shapes) {
    for (const KvDType dtype : {KvDType::kF16, KvDType::kBf16}) {
      shape.dtype = dtype;
      for (const bool is_bf16 : {false, true}) expect_reference(shape, is_bf16, seed++);
    }
  }
}

TEST(CudaAttention, PrefillsOfQuantizedCachesAgreeWithTheReference) {
  const std::vector<AttentionCase> shapes = {
      {"page of 3", 4, 2, 128, 3, KvDType::kF16, 0, 0, {{200, 61}, {0, 2}}},
      {"7 heads of a kv head", 14, 2, 64, 24, KvDType::kF16, 0, 0, {{257, 60}, {5, 130}}},
      {"head of 40", 6, 3, 40, 16, KvDType::kF16, 0, 0, {{0, 150}, {200, 20}}},
      {"head of 72", 4, 2, 72, 16, KvDType::kF16, 0, 0, {{126, 5}}},
      {"head of 200", 4, 2, 200, 16, KvDType::kF16, 0, 0, {{0, 70}, {31, 34}}},
      {"window and cap", 8, 2, 128, 16, KvDType::kF16, 200, 20.0f, {{600, 150}}},
  };
  uint32_t seed = 800;
  for (AttentionCase shape : shapes) {
    for (const KvDType dtype : {KvDType::kFp8E4M3, KvDType::kInt8, KvDType::kInt4}) {
      shape.dtype = dtype;
      for (const bool is_bf16 : {false, true}) expect_reference(shape, is_bf16, seed++);
    }
  }
}

// CTAs run several work tiles: short and long ones, of one KV tile and of several.
TEST(CudaAttention, MoreWorkTilesThanSmsAgreesWithTheReference) {
  AttentionCase shape{"crowd", 32, 32, 64, 16, KvDType::kF16, 0, 0, {}};
  for (const int64_t past : {0, 1, 100, 130, 250, 400, 3, 90, 127, 128, 260, 60, 0}) {
    shape.sequences.push_back({past, 10 + past % 7});
  }
  shape.sequences.push_back({0, 140});
  uint32_t seed = 900;
  for (const int64_t head_dim : {64, 128, 256}) {
    shape.head_dim = head_dim;
    for (const KvDType dtype : kTypes) {
      shape.dtype = dtype;
      expect_reference(shape, dtype == KvDType::kBf16, seed++);
    }
  }
}

TEST(CudaAttention, ScalesOfPrefillsMayHaveAnySign) {
  for (const float factor : {-1.0f, 0.0f}) {
    for (const KvDType dtype : {KvDType::kF16, KvDType::kInt8}) {
      const AttentionCase shape{"sign", 4, 2, 64, 16, dtype, 0, 0, {{0, 40}, {130, 33}}};
      OnDevice on_device(shape, false, 950);
      on_device.batch.scale_factor = factor;
      EXPECT_LE(largest_difference(on_device.run(on_device.batch.sequences()),
                                   on_device.batch.expected()),
                kF16Tolerance)
          << factor << " " << dtype;
    }
  }
}

TEST(CudaAttention, ARowsBitsDoNotDependOnItsNeighboursInTheBatch) {
  AttentionCase shape{"crowd", 8, 2, 128, 16, KvDType::kF16, 0, 0, {}};
  for (const int64_t past : {0, 7, 130, 1025, 2100, 3000, 9000}) {
    shape.sequences.push_back({past, 1});
    shape.sequences.push_back({past / 3, 40});
  }
  for (const KvDType dtype : kTypes) {
    shape.dtype = dtype;
    OnDevice on_device(shape, dtype == KvDType::kBf16, 300);
    const std::vector<float> together = on_device.run(on_device.batch.sequences());
    const auto columns = static_cast<size_t>(on_device.batch.num_columns());
    for (const BatchSequence& sequence : on_device.batch.sequences()) {
      const std::vector<float> alone = on_device.run({sequence});
      const size_t begin = static_cast<size_t>(sequence.first_row) * columns;
      const size_t end = begin + static_cast<size_t>(sequence.num_new_tokens) * columns;
      EXPECT_TRUE(has_same_bits(together, alone, begin, end))
          << dtype << " " << sequence.num_past_tokens;
      EXPECT_TRUE(std::all_of(alone.begin(), alone.begin() + static_cast<int64_t>(begin),
                              [](float x) { return std::isnan(x); }));
    }
  }
}

void expect_chunks_have_the_bits_of_the_whole(OnDevice& on_device) {
  const BatchSequence whole = on_device.batch.sequences()[0];
  const std::vector<float> at_once = on_device.run({whole});
  const auto columns = static_cast<size_t>(on_device.batch.num_columns());
  for (const int64_t step : {2, 33, 37, 64, 101, 200}) {
    for (int64_t begin = 0; begin < whole.num_new_tokens; begin += step) {
      BatchSequence chunk = whole;
      chunk.first_row = begin;
      chunk.num_past_tokens = begin;
      chunk.num_new_tokens = std::min(step, whole.num_new_tokens - begin);
      // A launch of two tokens covers nothing new. The last chunk may be a decode.
      if ((step == 2 && begin > 40) || chunk.num_new_tokens < 2) break;
      const std::vector<float> out = on_device.run({chunk});
      EXPECT_TRUE(has_same_bits(at_once, out, static_cast<size_t>(begin) * columns,
                                static_cast<size_t>(begin + chunk.num_new_tokens) * columns))
          << on_device.batch.layout().dtype << " " << begin << " " << step;
    }
  }
}

TEST(CudaAttention, APrefillsBitsDoNotDependOnChunksOfTwoOrMoreTokens) {
  for (const KvDType dtype : kTypes) {
    const AttentionCase shape{"chunks", 8, 2, 128, 16, dtype, 150, 0, {{0, 330}}};
    OnDevice on_device(shape, dtype == KvDType::kBf16, 400);
    expect_chunks_have_the_bits_of_the_whole(on_device);
  }
}

TEST(CudaAttention, AGraphServesBatchesThatComeLater) {
  AttentionCase shape{"graph", 8, 2, 128, 16, KvDType::kInt4, 0, 0, {}};
  for (const int64_t past : {3000, 5, 700, 1024, 9000}) shape.sequences.push_back({past, 1});
  OnDevice on_device(shape, false, 500);
  const std::vector<BatchSequence> all = on_device.batch.sequences();
  const std::vector<float> expected = on_device.run(all);
  DeviceMatrix out = on_device.blank_output();
  on_device.update({});
  const CudaGraph graph =
      CudaGraph::capture(on_device.stream, [&] { on_device.launch_decode(out); });
  graph.launch(on_device.stream);  // nothing to do
  for (const float x : out.get(on_device.stream)) ASSERT_TRUE(std::isnan(x));
  on_device.update({all[1]});
  graph.launch(on_device.stream);
  on_device.update(all);
  graph.launch(on_device.stream);
  EXPECT_TRUE(has_same_bits(out.get(on_device.stream), expected, 0, expected.size()));
}

TEST(CudaAttention, NotANumberReachesItsRowAndNoOtherSequence) {
  for (const KvDType dtype : kTypes) {
    const AttentionCase shape{"nan", 4, 1, 64, 16, dtype, 0, 0, {{1500, 1}, {1500, 1}, {40, 30}}};
    OnDevice on_device(shape, dtype == KvDType::kBf16, 600);
    const KvRow row = on_device.batch.value_row(0, 1400);
    if (row.scale != nullptr) {
      std::memset(row.scale, 0xFF, 4);
    } else {
      std::memset(row.data, 0xFF, 2);
    }
    on_device.send_pages();
    const std::vector<float> out = on_device.run(on_device.batch.sequences());
    const auto columns = static_cast<size_t>(on_device.batch.num_columns());
    for (size_t i = 0; i < out.size(); ++i) {
      const bool is_hit = i < columns && (row.scale != nullptr || i % 64 == 0);
      ASSERT_EQ(std::isnan(out[i]), is_hit) << dtype << " " << i;
    }
  }
}

}  // namespace
}  // namespace halley
