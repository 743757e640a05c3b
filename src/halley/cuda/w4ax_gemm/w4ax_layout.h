// Where the codes of a W4Ax weight lie: in the order in which threads feed them to the tensor
// cores. Pure functions of the host and the device.
#pragma once

#include <cstdint>

#include "halley/cuda/hopper_tile/tile_shape.h"

namespace halley::cuda {

/// Inputs that share a scale, of a token and of an output; a stage.
inline constexpr int kW4axInputs = 128;

/// Codes are chunks of kTileOutputs outputs and kW4axInputs inputs, along K and then along N, each
/// contiguous: [row 8][half 2][lane 32][16 bytes], as MixedKind::kU4S8 has them. A row is the 16
/// outputs of a warp in a product, a half 64 inputs; one 16-byte load gives a thread what it feeds
/// of them.
inline constexpr int kW4axChunkBytes = kTileOutputs * kW4axInputs / 2;
inline constexpr int kW4axRowBytes = 16 * kW4axInputs / 2;
inline constexpr int kW4axHalfBytes = kW4axRowBytes / 2;

/// Sizes of a weight [N, K] in memory, its padding included.
constexpr int64_t w4ax_blocks_of(int64_t K) { return (K + kW4axInputs - 1) / kW4axInputs; }
constexpr int64_t w4ax_scales_pitch(int64_t N) {
  return (N + kTileOutputs - 1) / kTileOutputs * kTileOutputs;
}
constexpr int64_t w4ax_code_bytes(int64_t N, int64_t K) {
  return w4ax_scales_pitch(N) / kTileOutputs * w4ax_blocks_of(K) * kW4axChunkBytes;
}
/// f32 [blocks][pitch].
constexpr int64_t w4ax_scale_bytes(int64_t N, int64_t K) {
  return w4ax_blocks_of(K) * w4ax_scales_pitch(N) * int64_t{sizeof(float)};
}

/// The codes of a byte of a chunk: of one input, and of two outputs, in the low and the high half.
struct W4axBytePlace {
  int output = 0;  // of the low half; the high one is that 8 further
  int input = 0;
};

/// A code less 8, in two's complement. Fragments of A in registers (PTX ISA, wgmma, "Register
/// Fragments", s8, "m64k32"): thread 32 w + 4 g + c holds outputs 16 w + g and 16 w + g + 8 of
/// 64; registers a0 and a1 are the two rows' inputs 4 c .. 4 c + 3, a2 and a3 those 16 further.
/// Two words a step of 32 inputs, word 0 (a0 | a1 << 4) and word 1 (a2 | a3 << 4).
constexpr W4axBytePlace w4ax_byte_place(int byte) {
  const int row = byte / kW4axRowBytes, half = byte % kW4axRowBytes / kW4axHalfBytes;
  const int lane = byte % kW4axHalfBytes / 16, word = byte % 16 / 4;
  return {row * 16 + lane / 4, half * 64 + word * 16 + lane % 4 * 4 + byte % 4};
}

}  // namespace halley::cuda
