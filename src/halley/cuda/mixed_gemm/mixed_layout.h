// Where the codes and group parameters of a weight of 4 or 8 bits lie for the Hopper products: in
// the order in which threads feed them to the tensor cores. Pure functions of the host and the
// device.
#pragma once

#include <cstdint>
#include <ostream>

namespace halley::cuda {

/// What codes of 4 or 8 bits mean and what they are multiplied with.
enum class MixedKind : uint8_t {
  kU4S8,       // w = scale[n] * (code - zero[n]); s8 activations with a scale a token
  kU4GroupS8,  // w = scale[n] * (group_scale * (code - group_zero)), in brackets s8; s8 activations
  kU4F16,      // w = f16(scale * (code - zero)), each of a group; f16 activations
  kU4Bf16,     // the same in bf16
  kU8F16,      // as kU4F16 with codes of 8 bits
  kU8Bf16,
};

const char* name_of(MixedKind kind);
inline std::ostream& operator<<(std::ostream& out, MixedKind kind) { return out << name_of(kind); }

/// Whether activations are s8, and sums s32.
constexpr bool is_s8(MixedKind kind) {
  return kind == MixedKind::kU4S8 || kind == MixedKind::kU4GroupS8;
}
/// Whether activations are f16.
constexpr bool is_f16(MixedKind kind) {
  return kind == MixedKind::kU4F16 || kind == MixedKind::kU8F16;
}
/// Whether codes have 8 bits.
constexpr bool is_u8(MixedKind kind) {
  return kind == MixedKind::kU8F16 || kind == MixedKind::kU8Bf16;
}

/// A weight is [ceil(N/128)][ceil(K/128)] chunks of 128 outputs and 128 inputs, each contiguous:
/// first 8192 bytes of codes (of 8 bits 16384), then the parameters of its groups.
inline constexpr int kChunkOutputs = 128;
inline constexpr int kChunkInputs = 128;
inline constexpr int kChunkCodeBytes = 8192;
/// Codes of a chunk: [row 8][half 2][lane 32][16 bytes]. A row is 16 outputs, those of a warp in a
/// tensor-core operation, a half 64 inputs; one 16-byte load gives a thread what it feeds of them.
inline constexpr int kRowCodeBytes = 1024;
inline constexpr int kHalfCodeBytes = 512;
/// Of 8 bits: [row 8][quarter 4][lane 32][16 bytes], a quarter 32 inputs.
constexpr int code_max(MixedKind kind) { return is_u8(kind) ? 255 : 15; }
constexpr int row_code_bytes(MixedKind kind) {
  return is_u8(kind) ? 2 * kRowCodeBytes : kRowCodeBytes;
}
constexpr int chunk_code_bytes(MixedKind kind) {
  return is_u8(kind) ? 2 * kChunkCodeBytes : kChunkCodeBytes;
}
/// Inputs of one step of the pipeline: a wgmma of s8, two of 16 bits.
inline constexpr int kStepInputs = 32;
inline constexpr int kChunkSteps = kChunkInputs / kStepInputs;

struct NibblePlace {
  int byte = 0;
  int shift = 0;  // 0 or 4; 0 of 8 bits
};

/// Where the code of output n and input k of a chunk lies. Fragments of A in registers (PTX ISA,
/// wgmma, "Register Fragments"): lane 4g + c of warp w holds outputs 16w + g and 16w + g + 8 of a
/// strip of 64.
///
/// s8, k32: registers a0 and a1 are the two outputs' inputs 4c .. 4c + 3, a2 and a3 those 16
/// further. Two words a step; a byte holds one input of both rows: word 0 (a0 | a1 << 4), word 1
/// (a2 | a3).
///
/// 16 bits, k16: a0 and a1 are the two rows' inputs 2c and 2c + 1, a2 and a3 those 8 further. One
/// word for 16 inputs: nibble i + 4 e is element e of a_i, so that a mask picks both elements.
/// Codes of 8 bits: a word of either row for 16 inputs, of which byte i + 2 e is element e of a_(2
/// i) or a_(2 i + 1). So four words are operand A of a product of 32 inputs of bytes, too.
constexpr NibblePlace nibble_place(MixedKind kind, int n, int k) {
  const int is_upper = n % 16 / 8;
  if (is_u8(kind)) {
    const int lane = n % 8 * 4 + k % 8 / 2;
    const int in_lane = k % 32 / 16 * 8 + is_upper * 4 + k % 2 * 2 + k % 16 / 8;
    return {n / 16 * row_code_bytes(kind) + k / 32 * 512 + lane * 16 + in_lane, 0};
  }
  const int begin = n / 16 * kRowCodeBytes + k / 64 * kHalfCodeBytes;
  if (is_s8(kind)) {
    const int lane = n % 8 * 4 + k % 16 / 4;
    const int word = k % 64 / 16;
    return {begin + lane * 16 + word * 4 + k % 4, is_upper * 4};
  }
  const int lane = n % 8 * 4 + k % 8 / 2;
  const int word = k % 64 / 16;
  const int nibble = is_upper + k % 16 / 8 * 2 + k % 2 * 4;
  return {begin + lane * 16 + word * 4 + nibble / 2, nibble % 2 * 4};
}

/// Bytes of one group's parameters of a chunk: [strip 2][warp 4][row 8], each entry for the rows g
/// and g + 8 of a warp. kU4GroupS8: four bytes, scale and offset of both; 16 bits: four numbers.
constexpr int group_entry_bytes(MixedKind kind) {
  return kind == MixedKind::kU4S8 ? 0 : kind == MixedKind::kU4GroupS8 ? 4 : 8;
}
constexpr int group_bytes(MixedKind kind) { return 64 * group_entry_bytes(kind); }

/// Index of the entry of output n of a chunk; the second half of it where n % 16 >= 8.
constexpr int group_entry(int n) { return n / 16 * 8 + n % 8; }

/// Zeros of groups are integers from 0 to this: some formats store them less one.
inline constexpr int kMixedZeroMax = 16;  // of 4 bits
constexpr int zero_max(MixedKind kind) { return is_u8(kind) ? 256 : kMixedZeroMax; }

/// What stands beside a scale of 16 bits: the number that a code of 0 is decoded to, plus the zero
/// (negative for the upper row of 4 bits in f16). All of them are exact. kU8Bf16: the zero itself,
/// an integer, since bf16 does not have these numbers.
constexpr uint16_t zero_bits(MixedKind kind, bool is_upper, int zero) {
  if (kind == MixedKind::kU8Bf16) return static_cast<uint16_t>(zero);
  if (kind == MixedKind::kU8F16) return static_cast<uint16_t>(0x6400 + zero);   // 1024 + zero
  if (kind == MixedKind::kU4Bf16) return static_cast<uint16_t>(0x4300 + zero);  // 128 + zero
  return static_cast<uint16_t>(is_upper ? 0xD400 + 16 * zero                    // -(64 + zero)
                                        : 0x6400 + zero);                       // 1024 + zero
}

/// Inputs of a stored group: 32, 64 or 128, which larger ones are cut into.
constexpr int stored_group_size(int64_t K, int64_t group_size) {
  const bool is_fine = group_size < kChunkInputs && group_size < K;
  return is_fine ? static_cast<int>(group_size) : kChunkInputs;
}

/// Groups of a chunk. `group_size` is 32, 64 or 128: larger ones are repeated.
constexpr int chunk_groups(int group_size) { return kChunkInputs / group_size; }

constexpr int chunk_bytes(MixedKind kind, int group_size) {
  return chunk_code_bytes(kind) + chunk_groups(group_size) * group_bytes(kind);
}

/// Bytes of all chunks. `group_size` as stored.
constexpr int64_t mixed_bytes(MixedKind kind, int64_t N, int64_t K, int group_size) {
  const int64_t panels = (N + kChunkOutputs - 1) / kChunkOutputs;
  return panels * ((K + kChunkInputs - 1) / kChunkInputs) * chunk_bytes(kind, group_size);
}

/// Bytes of the scales of outputs, of s8 alone, and of the offsets behind them.
constexpr int64_t mixed_scale_bytes(MixedKind kind, int64_t N, bool has_offsets) {
  return is_s8(kind) ? N * (has_offsets ? 2 : 1) * int64_t{sizeof(float)} : 0;
}

/// A stored nibble is the code; of kU4S8 the code less 8 in two's complement.
constexpr uint8_t nibble_flip(MixedKind kind) { return kind == MixedKind::kU4S8 ? 8 : 0; }

}  // namespace halley::cuda
