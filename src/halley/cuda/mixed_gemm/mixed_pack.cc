#include "halley/cuda/mixed_gemm/mixed_pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"

namespace halley::cuda {
namespace {

constexpr int kMiddle = 8;                 // codes of kU4S8 are stored less this
constexpr int64_t kSumInputsMax = 131071;  // 128 * 128 * K stays below 2^31

/// Chunks of 128 outputs.
class Chunks {
 public:
  Chunks(MixedKind kind, int64_t K, int group_size)
      : num_chunks_(ceil_div<int64_t>(K, kChunkInputs)), bytes_(chunk_bytes(kind, group_size)) {}

  size_t offset_of(int64_t n, int64_t k) const {
    const int64_t chunk = n / kChunkOutputs * num_chunks_ + k / kChunkInputs;
    return static_cast<size_t>(chunk * bytes_);
  }

 private:
  int64_t num_chunks_;
  int64_t bytes_;
};

int64_t num_groups_of(const MixedSource& source) { return ceil_div(source.K, source.group_size); }

float zero_of(const MixedSource& source, int64_t n, int64_t group) {
  if (source.zeros.empty()) return static_cast<float>(zero_max(source.kind) / 2);
  return source.zeros[static_cast<size_t>(n * num_groups_of(source) + group)];
}

std::string place_of(const MixedSource& source, int64_t n, int64_t group) {
  return str("weight of ", is_u8(source.kind) ? 8 : 4, " bits (", source.kind, "), output ", n,
             ", group ", group);
}

/// The zero as an integer.
int integer_zero(const MixedSource& source, int64_t n, int64_t group) {
  const float zero = zero_of(source, n, group);
  const int max = zero_max(source.kind);
  if (!(zero >= 0 && zero <= static_cast<float>(max)) || zero != std::floor(zero)) {
    throw CheckpointError(str(place_of(source, n, group),
                              ": expected a zero point that is an integer from 0 to ", max,
                              ", got ", zero, ". Check the checkpoint."));
  }
  return static_cast<int>(zero);
}

struct GroupPlace {
  int64_t n = 0;
  int64_t k = 0;      // its first input
  int64_t group = 0;  // of the source
};

/// The entry of an output and a stored group, [scale, zero] as mixed_decode.cuh reads them.
void put_16_bits(const MixedSource& source, const GroupPlace& place, uint8_t* entry) {
  const bool has_f16 = is_f16(source.kind);
  const int zero = integer_zero(source, place.n, place.group);
  const float scale =
      source.scales[static_cast<size_t>(place.n * num_groups_of(source) + place.group)];
  const uint16_t rounded = has_f16 ? f32_to_f16(scale) : f32_to_bf16(scale);
  if (std::isfinite(scale) &&
      !std::isfinite(has_f16 ? f16_to_f32(rounded) : bf16_to_f32(rounded))) {
    throw CheckpointError(str(place_of(source, place.n, place.group), ": expected a scale that ",
                              has_f16 ? "f16" : "bf16", " has, got ", scale,
                              ". Load the model in another type."));
  }
  if (source.kind == MixedKind::kU8Bf16 && std::isfinite(scale) &&
      std::fabs(scale) > kU8Bf16ScaleMax) {
    throw CheckpointError(str(place_of(source, place.n, place.group),
                              ": expected a scale of at most 2^111, got ", scale,
                              ". Check the checkpoint."));
  }
  const bool is_upper = place.n % 16 >= 8;
  const uint16_t both[2] = {rounded, zero_bits(source.kind, is_upper, zero)};
  std::memcpy(entry + (is_upper ? 4 : 0), both, sizeof(both));
}

void put_group_s8(const MixedSource& source, const GroupPlace& place, uint8_t* entry) {
  const int zero = integer_zero(source, place.n, place.group);
  const int scale =
      source.group_scales[static_cast<size_t>(place.n * num_groups_of(source) + place.group)];
  const int offset = 128 - zero * scale;
  const int64_t end = std::min(source.K, (place.group + 1) * source.group_size);
  for (int64_t k = place.group * source.group_size; k < end; ++k) {
    const int code = source.codes[static_cast<size_t>(place.n * source.K + k)];
    if (offset < 0 || code * scale + offset < 0 || code * scale + offset > 255) {
      throw CheckpointError(str(place_of(source, place.n, place.group), ": expected ", scale,
                                " * (code - ", zero, ") in [-128, 127], for code 0 at least -128",
                                ", got code ", code, ". Check the checkpoint."));
    }
  }
  uint8_t* to = entry + (place.n % 16 >= 8 ? 2 : 0);
  to[0] = static_cast<uint8_t>(scale);
  to[1] = static_cast<uint8_t>(offset);
}

void put_groups(const MixedSource& source, const Chunks& chunks, MixedPacked* packed) {
  const int64_t inputs = round_up<int64_t>(source.K, kChunkInputs);
  const int64_t outputs = round_up<int64_t>(source.N, kChunkOutputs);
  for (int64_t n = 0; n < outputs; ++n) {
    for (int64_t k = 0; k < inputs; k += packed->group_size) {
      // Entries behind N and K stay zero: numbers there are finite, and meet inputs of zero.
      if (n >= source.N || k >= source.K) continue;
      const int64_t in_chunk = k % kChunkInputs / packed->group_size;
      uint8_t* entry =
          packed->chunks.data() + chunks.offset_of(n, k) + chunk_code_bytes(source.kind) +
          in_chunk * group_bytes(source.kind) +
          group_entry(static_cast<int>(n % kChunkOutputs)) * group_entry_bytes(source.kind);
      const GroupPlace place = {n, k, k / source.group_size};
      if (source.kind == MixedKind::kU4GroupS8) {
        put_group_s8(source, place, entry);
      } else {
        put_16_bits(source, place, entry);
      }
    }
  }
}

void put_codes(const MixedSource& source, const Chunks& chunks, MixedPacked* packed) {
  for (int64_t n = 0; n < source.N; ++n) {
    for (int64_t k = 0; k < source.K; ++k) {
      const uint8_t code = source.codes[static_cast<size_t>(n * source.K + k)];
      if (code > code_max(source.kind)) {
        throw CheckpointError(str(place_of(source, n, k / source.group_size),
                                  ": expected codes from 0 to ", code_max(source.kind), ", got ",
                                  int{code}, ". Check the checkpoint."));
      }
      const NibblePlace place = nibble_place(source.kind, static_cast<int>(n % kChunkOutputs),
                                             static_cast<int>(k % kChunkInputs));
      uint8_t* to = packed->chunks.data() + chunks.offset_of(n, k) + place.byte;
      *to = static_cast<uint8_t>(*to | (code ^ nibble_flip(source.kind)) << place.shift);
    }
  }
}

void put_output_scales(const MixedSource& source, MixedPacked* packed) {
  packed->w_scales.assign(source.scales.begin(), source.scales.end());
  if (source.kind != MixedKind::kU4S8 || source.zeros.empty()) return;
  bool has_offsets = false;
  for (size_t n = 0; n < source.zeros.size(); ++n) {
    packed->w_offsets.push_back(source.scales[n] * (source.zeros[n] - kMiddle));
    has_offsets = has_offsets || source.zeros[n] != kMiddle;
  }
  if (!has_offsets) packed->w_offsets.clear();
}

}  // namespace

std::string why_not_mixed(MixedKind kind, int64_t K, int64_t group_size) {
  if (is_s8(kind) && K > kSumInputsMax) {
    return str("K ", K, " is above ", kSumInputsMax, ", where sums of s8 leave 32 bits");
  }
  if (kind == MixedKind::kU4S8) {
    return group_size >= K ? "" : str("groups of ", group_size, " inputs, not one a row");
  }
  if (group_size == 32 || group_size == 64 || group_size % kChunkInputs == 0 || group_size >= K) {
    return "";
  }
  return str("groups of ", group_size, " inputs, neither 32, 64 nor a multiple of ", kChunkInputs);
}

MixedPacked pack_mixed(const MixedSource& source) {
  HALLEY_CHECK(source.N >= 1 && source.K >= 1 && source.group_size >= 1, source.N, source.K,
               source.group_size);
  const auto groups = static_cast<size_t>(source.N * num_groups_of(source));
  const auto outputs = static_cast<size_t>(source.N);
  HALLEY_CHECK(source.codes.size() == outputs * static_cast<size_t>(source.K), source.N, source.K);
  HALLEY_CHECK(source.scales.size() == (is_s8(source.kind) ? outputs : groups),
               source.scales.size());
  HALLEY_CHECK(source.zeros.empty() || source.zeros.size() == groups, source.zeros.size());
  HALLEY_CHECK(source.group_scales.size() == (source.kind == MixedKind::kU4GroupS8 ? groups : 0),
               source.group_scales.size());
  if (const std::string why = why_not_mixed(source.kind, source.K, source.group_size);
      !why.empty()) {
    throw UnsupportedError(str("weight of ", is_u8(source.kind) ? 8 : 4, " bits (", source.kind,
                               "): ", why, ". Use a kernel that decodes at load."));
  }
  MixedPacked packed = {.kind = source.kind, .N = source.N, .K = source.K};
  packed.group_size = stored_group_size(source.K, source.group_size);
  const Chunks chunks(source.kind, source.K, packed.group_size);
  packed.chunks.resize(
      static_cast<size_t>(mixed_bytes(source.kind, source.N, source.K, packed.group_size)));
  put_codes(source, chunks, &packed);
  if (source.kind != MixedKind::kU4S8) put_groups(source, chunks, &packed);
  if (is_s8(source.kind)) put_output_scales(source, &packed);
  return packed;
}

std::vector<float> unpack_mixed_row(const MixedPacked& packed, int64_t n) {
  const Chunks chunks(packed.kind, packed.K, packed.group_size);
  const bool is_upper = n % 16 >= 8;
  const auto column = static_cast<int>(n % kChunkOutputs);
  std::vector<float> row;
  row.reserve(static_cast<size_t>(packed.K));
  for (int64_t k = 0; k < packed.K; ++k) {
    const auto in_chunk = static_cast<int>(k % kChunkInputs);
    const uint8_t* chunk = packed.chunks.data() + chunks.offset_of(n, k);
    const NibblePlace place = nibble_place(packed.kind, column, in_chunk);
    const int code =
        (chunk[place.byte] >> place.shift & code_max(packed.kind)) ^ nibble_flip(packed.kind);
    const int entry_bytes = group_entry_bytes(packed.kind);
    const uint8_t* entry = chunk + chunk_code_bytes(packed.kind) +
                           in_chunk / packed.group_size * group_bytes(packed.kind) +
                           group_entry(column) * entry_bytes + (is_upper ? entry_bytes / 2 : 0);
    if (packed.kind == MixedKind::kU4S8) {
      row.push_back(static_cast<float>(code - kMiddle));
    } else if (packed.kind == MixedKind::kU4GroupS8) {
      row.push_back(static_cast<float>(code * entry[0] + entry[1] - 128));
    } else {
      uint16_t both[2];
      std::memcpy(both, entry, sizeof(both));
      const bool has_f16 = is_f16(packed.kind);
      const int steps = static_cast<int16_t>(both[1] - zero_bits(packed.kind, is_upper, 0));
      const int zero = packed.kind == MixedKind::kU4F16 && is_upper ? steps / 16 : steps;
      const float scale = has_f16 ? f16_to_f32(both[0]) : bf16_to_f32(both[0]);
      const float number = scale * static_cast<float>(code - zero);
      row.push_back(has_f16 ? f16_to_f32(f32_to_f16(number)) : bf16_to_f32(f32_to_bf16(number)));
    }
  }
  return row;
}

}  // namespace halley::cuda
