#include "halley/quant/packed/packed_tensors.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/core/float16.h"
#include "halley/core/nested_float.h"
#include "halley/quant/solve/grid_rule.h"

namespace halley {
namespace {

/// Memory of a format's tensors, as PyTorch has it.
class PackedMemory {
 public:
  explicit PackedMemory(const PackedFormat& format)
      : qweight_(bytes_of(qweight_shape(format), 1)),
        groups_(bytes_of(groups_shape(format), sizeof(float))) {}

  PackedTensors tensors() { return {memory_of(qweight_), memory_of(groups_), {}}; }
  std::span<const uint8_t> qweight() const { return qweight_.as<uint8_t>(); }
  std::span<const float> groups() const { return groups_.as<float>(); }

 private:
  static size_t bytes_of(const Shape& shape, size_t element_bytes) {
    return static_cast<size_t>(num_elements_of(shape).value()) * element_bytes;
  }
  static TensorMemory memory_of(HostBuffer& buffer) {
    return {reinterpret_cast<uintptr_t>(buffer.data()), buffer.num_bytes()};
  }

  HostBuffer qweight_, groups_;
};

void with_threads(int num_threads, const std::function<void(ExecContext& context)>& run) {
  ThreadPool pool(num_threads);
  ExecContext context{pool};
  run(context);
}

template <typename T>
TensorMemory memory_of(std::vector<T>& values) {
  return {reinterpret_cast<uintptr_t>(values.data()), values.size() * sizeof(T)};
}

PackedFormat format_of(const char* scheme, int64_t N, int64_t K, int64_t group_size) {
  return {.scheme = scheme, .N = N, .K = K, .group_size = group_size, .num_inputs = K};
}

std::vector<float> random_values(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.3f);
  std::vector<float> values(static_cast<size_t>(count));
  std::generate(values.begin(), values.end(),
                [&] { return std::clamp(normal(random), -1.75f, 1.75f); });
  return values;
}

std::string round(const PackedFormat& format, RoundingOptions options, std::vector<float> w,
                  PackedMemory& out) {
  std::string why_not;
  with_threads(2, [&](ExecContext& context) {
    why_not = round_linear(context, "layer", format, options, memory_of(w), out.tensors());
  });
  return why_not;
}

std::vector<float> dequantize(const PackedFormat& format, PackedMemory& packed) {
  std::vector<float> w(static_cast<size_t>(format.N * format.num_inputs));
  dequantize_linear(format, packed.tensors(), Precision::kFull, memory_of(w));
  return w;
}

/// A weight in rows.
struct Plain {
  explicit Plain(const PackedFormat& format)
      : qweight(static_cast<size_t>(format.N * format.K * (format.group_size == 0 ? 2 : 1))),
        scales(format.group_size == 0
                   ? 0
                   : static_cast<size_t>(format.N * ceil_div(format.K, format.group_size))),
        zeros(scales.size()) {}
  PlainTensors tensors() { return {memory_of(qweight), memory_of(scales), memory_of(zeros)}; }

  std::vector<uint8_t> qweight;
  std::vector<float> scales, zeros;
};

Plain random_plain(const PackedFormat& format, unsigned seed) {
  std::mt19937 random(seed);
  Plain plain(format);
  const uint64_t mask = format.scheme.find("int4") == 0 ? 15 : 255;
  const size_t count = static_cast<size_t>(format.N * format.K);
  for (size_t i = 0; i < count; ++i) {
    if (format.group_size != 0) {
      // Not a NaN of e4m3.
      plain.qweight[i] = static_cast<uint8_t>(std::min<uint64_t>(random() & mask, 126));
      continue;
    }
    const NestedFloat nested = split_f16(static_cast<uint16_t>(random() % kNestedMagnitudeMax));
    plain.qweight[i] = nested.upper;
    plain.qweight[count + i] = nested.lower;
  }
  for (float& scale : plain.scales) scale = static_cast<float>(random() % 100 + 1) / 64;
  for (float& zero : plain.zeros) zero = static_cast<float>(random() % 16);
  return plain;
}

void pack(const PackedFormat& format, Plain& plain, PackedMemory& out) {
  with_threads(1, [&](ExecContext& context) {
    pack_linear(context, format, plain.tensors(), out.tensors());
  });
}

/// Odd sizes among them: one less and one more than a panel and a unit.
const std::vector<PackedFormat> kFormats = {
    format_of("int4", 96, 128, 32),     format_of("int4", 31, 33, 16),
    format_of("int8", 33, 100, 100),    format_of("int8", 1, 1, 1),
    format_of("int4_a8", 64, 256, 128), format_of("int4_a8", 40, 65, 65),
    format_of("int8_a8", 32, 95, 95),   format_of("float8", 65, 128, 128),
    format_of("nestedfp", 33, 96, 0),   format_of("nestedfp", 64, 31, 0)};

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(PackedLinear, UnpacksWhatItPacked) {
  for (const PackedFormat& format : kFormats) {
    Plain plain = random_plain(format, 1), again(format);
    PackedMemory packed(format);
    pack(format, plain, packed);
    unpack_linear(format, packed.tensors(), again.tensors());
    EXPECT_EQ(again.qweight, plain.qweight) << format.scheme << format.N << "x" << format.K;
    EXPECT_EQ(again.scales, plain.scales) << format.scheme;
    EXPECT_EQ(again.zeros, plain.zeros) << format.scheme;
  }
}

TEST(PackedLinear, RoundsAsTheQuantizersDo) {
  const PackedFormat format = format_of("int4", 40, 200, 64);
  const std::vector<float> w = random_values(format.N * format.K, 2);
  for (const bool is_symmetric : {false, true}) {
    PackedMemory packed(format);
    EXPECT_EQ(round(format, {.is_symmetric = is_symmetric}, w, packed), "");
    const std::vector<float> got = dequantize(format, packed);
    with_threads(1, [&](ExecContext& context) {
      const auto rule = make_minmax_rule(
          {.bits = 4, .group_size = format.group_size, .is_symmetric = is_symmetric}, {});
      const QuantizedWeight expected =
          round_to_nearest(context, f32_matrix(w.data(), format.N, format.K), *rule);
      std::vector<float> row(static_cast<size_t>(format.K));
      for (int64_t n = 0; n < format.N; ++n) {
        dequantize_row(expected, n, row);
        EXPECT_TRUE(std::equal(row.begin(), row.end(), got.begin() + n * format.K)) << n;
      }
    });
  }
}

TEST(PackedLinear, KeepsValuesWithinTheStepOfTheirFormat) {
  // Half a step of the largest magnitude 1.75; two levels of scales have steps of their own.
  const std::vector<std::pair<PackedFormat, float>> cases = {
      {format_of("int8", 33, 100, 100), 1.75f / 255},
      {format_of("int8_a8", 33, 64, 64), 1.75f / 255},
      {format_of("int4_a8", 40, 65, 65), 1.75f / 15},
      {format_of("int4_a8", 64, 256, 128), 2.6f / 15},
      {format_of("float8", 33, 64, 64), 1.75f / 16},
      {format_of("nestedfp", 33, 64, 0), 0x1p-11f}};
  for (const auto& [format, error_max] : cases) {
    const std::vector<float> w = random_values(format.N * format.K, 3);
    PackedMemory packed(format);
    EXPECT_EQ(round(format, {.is_symmetric = format.scheme == "int8_a8"}, w, packed), "");
    const std::vector<float> got = dequantize(format, packed);
    for (size_t i = 0; i < w.size(); ++i) {
      EXPECT_LE(std::fabs(got[i] - w[i]), error_max * 1.01f) << format.scheme << " " << i;
    }
  }
}

TEST(PackedLinear, SaysWhyANestedWeightIsAnException) {
  const PackedFormat format = format_of("nestedfp", 1, 2, 0);
  PackedMemory packed(format);
  EXPECT_EQ(round(format, {}, {1.0f, -3.5f}, packed),
            "1 of 2 weights are beyond 1.75, the first is -3.5 at [0, 1]");
}

TEST(PackedLinear, PlansBlocksOfTheInputsThatMatter) {
  constexpr int64_t kN = 4, kK = 512;
  std::vector<float> w(kN * kK, 1.0f), abs_max(kK, 1.0f), rms(kK, 0.5f);
  for (size_t k = 7; k < kK; k += 4) abs_max[k] = rms[k] = 20;  // 127 of them
  const BlockInputs plan =
      plan_block_inputs(kN, kK, 0.25, memory_of(abs_max), memory_of(rms), memory_of(w));
  EXPECT_EQ(plan.num_s8_inputs, 128);
  EXPECT_TRUE(std::all_of(plan.input_perm.begin(), plan.input_perm.begin() + 127,
                          [](int32_t k) { return k >= 7 && k % 4 == 3; }));
  const BlockInputs none =
      plan_block_inputs(kN, kK, 0, memory_of(abs_max), memory_of(rms), memory_of(w));
  EXPECT_EQ(none.num_s8_inputs, 0);
}

TEST(PackedLinear, RejectsWrongFormats) {
  const auto error = [](PackedFormat format) { return error_of([&] { qweight_shape(format); }); };
  EXPECT_EQ(
      error(format_of("int5", 1, 1, 1)),
      "packed weight: scheme: expected one of [int4, int8, int4_a8, int8_a8, int4_ax, float8, "
      "nestedfp], got \"int5\".");
  EXPECT_EQ(error(format_of("int4", 0, 1, 1)),
            "packed weight: weight: expected N and K from 1 to 1073741824, got 0, 1.");
  EXPECT_EQ(error(format_of("int4", 1, 8, 9)),
            "packed weight: group_size: expected 1 to K, got 9 for K 8.");
  EXPECT_EQ(error(format_of("nestedfp", 1, 8, 8)),
            "packed weight: group_size: expected 0, got 8 for K 8.");
  PackedFormat format = format_of("int4_ax", 1, 256, 128);
  format.num_s8_inputs = 100;
  EXPECT_EQ(error(format),
            "packed weight: num_s8_inputs: expected a multiple of 128 up to K, or K, got 100 for K "
            "256.");
  format.num_s8_inputs = 0;
  format.s4_clip = 0;
  EXPECT_EQ(error(format), "packed weight: s4_clip: expected above 0 and at most 1, got 0.");
  format = format_of("int4", 1, 8, 8);
  format.num_inputs = 9;
  EXPECT_EQ(error(format), "packed weight: num_inputs: expected K, got 9 for K 8.");
  format = format_of("nestedfp", 1, 8, 0);
  format.has_input_perm = true;
  EXPECT_EQ(error(format), "packed weight: input_perm: expected none for nestedfp.");
}

TEST(PackedLinear, RejectsMemoryThatDoesNotFit) {
  const PackedFormat format = format_of("int4", 32, 32, 32);
  PackedMemory packed(format);
  const auto error = [&](const PackedTensors& tensors) {
    return error_of([&] { view_linear(format, tensors); });
  };
  PackedTensors tensors = packed.tensors();
  tensors.qweight.num_bytes -= 1;
  EXPECT_EQ(error(tensors), "packed weight: qweight: expected 512 bytes, got 511.");
  tensors = packed.tensors();
  tensors.groups.address += 4;
  EXPECT_EQ(error(tensors),
            "packed weight: groups: expected memory at a multiple of 64 bytes. Clone the tensor.");
  PackedFormat permuted = format;
  permuted.has_input_perm = true;
  std::vector<int32_t> perm(32, 0);
  perm[3] = 32;
  tensors = packed.tensors();
  tensors.input_perm = memory_of(perm);
  EXPECT_EQ(error_of([&] { view_linear(permuted, tensors); }),
            "packed weight: input_perm: expected 0 to 31, got 32.");
  std::vector<float> short_row(31);
  EXPECT_EQ(error_of([&] { elements_of<float>(memory_of(short_row), 32, "x"); }),
            "packed weight: x: expected 128 bytes, got 124.");
  EXPECT_EQ(error_of([&] {
              elements_of<float>({short_row.size() * 4 + 1, 124}, 31, "x");
            }),
            "packed weight: x: expected memory at a multiple of 4 bytes.");
}

TEST(PackedLinear, RejectsValuesThatTheFormatDoesNotHave) {
  const PackedFormat format = format_of("int4", 1, 2, 2);
  PackedMemory packed(format);
  Plain plain(format);
  plain.qweight = {3, 16};
  EXPECT_EQ(error_of([&] { pack(format, plain, packed); }),
            "packed weight: qweight: expected 0 to 15, got 16.");
  plain.qweight = {3, 15};
  plain.scales = {std::numeric_limits<float>::infinity()};
  EXPECT_EQ(error_of([&] { pack(format, plain, packed); }),
            "packed weight: scales, zeros: expected finite numbers.");
  const PackedFormat nested = format_of("nestedfp", 1, 1, 0);
  PackedMemory packed_nested(nested);
  Plain planes(nested);
  planes.qweight = {0x7F, 0};
  EXPECT_EQ(error_of([&] { pack(nested, planes, packed_nested); }),
            "packed weight: qweight: expected the two bytes of an f16 value of magnitude at most "
            "1.75, got 127 and 0.");
  EXPECT_EQ(error_of([&] {
              round(format, {}, {0, NAN}, packed);
            }),
            "layer \"layer\": expected finite weights, got nan at [0, 1]. Load the weights again.");
  std::vector<float> one(1);
  EXPECT_EQ(error_of([&] {
              plan_block_inputs(1, 1, 1.5, memory_of(one), memory_of(one), memory_of(one));
            }),
            "packed weight: s8_share: expected 0 to 1, got 1.5.");
}

}  // namespace
}  // namespace halley
