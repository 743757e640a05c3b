#include <algorithm>
#include <bit>
#include <cmath>
#include <compare>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/checkpoint/safetensors/sorted_tensors.h"
#include "halley/core/float16.h"
#include "halley/core/host_buffer.h"

namespace halley {
namespace {

// Trained models are initialised with this deviation: logits of any depth stay small.
constexpr double kStandardDeviation = 0.02;
// Tensors of one type start at different offsets of their block, so that they differ.
constexpr size_t kOffsetBytesMax = 1 << 16;
constexpr size_t kOffsetStepBytes = 64;
// The block repeats a pattern of this many elements. A prime, so that rows of a matrix differ.
constexpr size_t kPatternElements = 1'048'573;

// splitmix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  // Close to normal: the sum of four uniform numbers, of variance 4/12.
  double normal() {
    const uint64_t four = bits();
    double sum = 0.0;
    for (int i = 0; i < 4; ++i) sum += static_cast<double>((four >> (16 * i)) & 0xFFFFu) / 65535.0;
    return (sum - 2.0) * std::sqrt(3.0) * kStandardDeviation;
  }

 private:
  uint64_t state_;
};

// An 8-bit float whose magnitude has a code of at most `code_max`. No minus zero, which is a NaN in
// the "fnuz" types.
uint8_t small_f8(Random& random, uint32_t code_max) {
  const uint64_t bits = random.bits();
  const auto code = static_cast<uint8_t>((bits >> 8) % (code_max + 1));
  return code == 0 ? code : static_cast<uint8_t>(code | ((bits & 1u) << 7));
}

// Magnitudes of 2^-6 to 7.5, to be multiplied by a scale. Subnormal values are rare in real
// weights, and slow on some processors.
uint8_t usual_e4m3(Random& random) {
  const uint64_t bits = random.bits();
  return static_cast<uint8_t>((8 + (bits >> 8) % 72) | ((bits & 1u) << 7));
}

// One element, little-endian in the low bits.
uint64_t random_element(DType dtype, Random& random) {
  switch (dtype) {
    case DType::kF16:
      return f32_to_f16(static_cast<float>(random.normal()));
    case DType::kBf16:
      return f32_to_bf16(static_cast<float>(random.normal()));
    case DType::kF32:
      return std::bit_cast<uint32_t>(static_cast<float>(random.normal()));
    case DType::kF64:
      return std::bit_cast<uint64_t>(random.normal());
    case DType::kC64: {
      const uint64_t real = std::bit_cast<uint32_t>(static_cast<float>(random.normal()));
      const uint64_t imaginary = std::bit_cast<uint32_t>(static_cast<float>(random.normal()));
      return real | (imaginary << 32);
    }
    case DType::kF8E4M3:
      return usual_e4m3(random);
    case DType::kF8E4M3Fnuz:  // up to 15 * 2^-9
      return small_f8(random, 15);
    case DType::kF8E5M2:  // up to 2^-5
    case DType::kF8E5M2Fnuz:
      return small_f8(random, 40);
    case DType::kF8E8M0:  // a scale from 2^-8 to 2^-5
      return 119 + random.bits() % 4;
    case DType::kBool:
      return random.bits() & 1u;
    default:  // integers, and small floats without NaN
      return random.bits();
  }
}

// A scale: above zero, so that quantized values of a few bits become weights of the usual size.
uint64_t random_scale(DType dtype, Random& random) {
  const auto scale = static_cast<float>(0.002 + 0.1 * std::fabs(random.normal()));
  switch (dtype) {
    case DType::kF16:
      return f32_to_f16(scale);
    case DType::kBf16:
      return f32_to_bf16(scale);
    case DType::kF32:
      return std::bit_cast<uint32_t>(scale);
    case DType::kI8:
      return 1 + random.bits() % 7;
    default:
      return random_element(dtype, random);
  }
}

// A zero: for 8 bits so small that 4-bit values times a scale stay within 8 bits.
uint64_t random_zero(DType dtype, Random& random) {
  if (dtype == DType::kI8) return static_cast<uint8_t>(-static_cast<int>(random.bits() % 57));
  return random_element(dtype, random);
}

// A ratio to clip by.
uint64_t clip_ratio(DType dtype, Random& random) {
  return dtype == DType::kF32 ? std::bit_cast<uint32_t>(0.875f) : random_element(dtype, random);
}

// Bytes of two planes that are one f16 value wherever they meet (core/nested_float.h): the last bit
// of an upper byte and the first two of a lower one are zero, so that nothing was rounded upwards.
uint64_t random_upper(Random& random) { return usual_e4m3(random) & 0xFEu; }
uint64_t random_lower(Random& random) { return random.bits() % 64; }

enum class Meaning : uint8_t { kWeight, kScale, kZero, kClip, kBits, kUpper, kLower };

// The kind of a tensor's elements.
struct BlockKind {
  DType dtype = DType::kF32;
  Meaning meaning = Meaning::kWeight;

  auto operator<=>(const BlockKind&) const = default;
};

BlockKind kind_of(const TensorInfo& info) {
  const auto has = [&](const char* word) { return info.name.find(word) != std::string::npos; };
  return {info.dtype, has("scale")          ? Meaning::kScale
                      : has("zeros")        ? Meaning::kZero
                      : has("_clip")        ? Meaning::kClip
                      : has("block_bits")   ? Meaning::kBits
                      : has("weight_upper") ? Meaning::kUpper
                      : has("weight_lower") ? Meaning::kLower
                                            : Meaning::kWeight};
}

uint64_t random_element_of(const BlockKind& kind, Random& random) {
  switch (kind.meaning) {
    case Meaning::kScale:
      return random_scale(kind.dtype, random);
    case Meaning::kZero:
      return random_zero(kind.dtype, random);
    case Meaning::kClip:
      return clip_ratio(kind.dtype, random);
    case Meaning::kBits:
      return 4;
    case Meaning::kUpper:
      return random_upper(random);
    case Meaning::kLower:
      return random_lower(random);
    case Meaning::kWeight:
      break;
  }
  return random_element(kind.dtype, random);
}

// Elements that repeat with a period of kPatternElements. Types of less than a byte, whose bit
// patterns are all valid, are filled as bytes.
HostBuffer make_block(const BlockKind& kind, size_t num_bytes) {
  const DType dtype = kind.dtype;
  HostBuffer block(num_bytes);
  Random random(static_cast<uint64_t>(dtype));
  const size_t element_bytes = std::max<size_t>(1, static_cast<size_t>(bits_of(dtype)) / 8);
  const size_t pattern_bytes = std::min(num_bytes, kPatternElements * element_bytes);
  for (size_t i = 0; i < pattern_bytes; i += element_bytes) {
    const uint64_t element = random_element_of(kind, random);
    std::memcpy(block.data() + i, &element, std::min(element_bytes, pattern_bytes - i));
  }
  for (size_t i = pattern_bytes; i < num_bytes; i += pattern_bytes) {
    std::memcpy(block.data() + i, block.data(), std::min(pattern_bytes, num_bytes - i));
  }
  return block;
}

class DummyWeights : public TensorSource {
 public:
  explicit DummyWeights(std::vector<TensorInfo> infos) : infos_(std::move(infos)) {
    std::sort(infos_.begin(), infos_.end(),
              [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
    std::map<BlockKind, size_t> num_bytes_max;
    for (TensorInfo& info : infos_) {
      HALLEY_CHECK(&info == infos_.data() || (&info)[-1].name != info.name, info.name);
      info.num_bytes = num_bytes_of(info);
      size_t& num_bytes = num_bytes_max[kind_of(info)];
      num_bytes = std::max(num_bytes, info.num_bytes);
    }
    for (const auto& [kind, num_bytes] : num_bytes_max) {
      const auto total = checked_add(num_bytes, kOffsetBytesMax);
      if (!total) throw InputError(str("dummy weights: ", num_bytes, " bytes are too many."));
      blocks_.emplace(kind, make_block(kind, *total));
    }
  }

  std::string description() const override { return "dummy weights"; }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }

  const TensorInfo* find(std::string_view name) const override { return find_sorted(infos_, name); }

  TensorView view(const TensorInfo& info) const override {
    const TensorInfo* own = find(info.name);
    HALLEY_CHECK(own != nullptr, info.name);
    const size_t index = static_cast<size_t>(own - infos_.data());
    // Offsets come from the index, so that they do not depend on the library's string hash.
    const size_t offset =
        Random(index).bits() % (kOffsetBytesMax / kOffsetStepBytes + 1) * kOffsetStepBytes;
    return {blocks_.at(kind_of(*own)).data() + offset, own->dtype, own->shape};
  }

 private:
  static size_t num_bytes_of(const TensorInfo& info) {
    const auto num_elements = num_elements_of(info.shape);
    const auto num_bits = num_elements ? checked_mul(static_cast<uint64_t>(*num_elements),
                                                     static_cast<uint64_t>(bits_of(info.dtype)))
                                       : std::nullopt;
    if (!num_bits || *num_bits % 8 != 0) {
      throw InputError(str("dummy weights: tensor ", halley::quote(info.name),
                           ": expected a size of whole bytes that fits 64 bits, got ", info.dtype,
                           " ", info.shape, ". Check the sizes in config.json."));
    }
    return *num_bits / 8;
  }

  std::vector<TensorInfo> infos_;  // sorted by name
  std::map<BlockKind, HostBuffer> blocks_;
};

}  // namespace

std::unique_ptr<TensorSource> make_dummy_weights(std::vector<TensorInfo> infos) {
  return std::make_unique<DummyWeights>(std::move(infos));
}

}  // namespace halley
