// A weight of 8, 3, 2 or 1 bits in device memory, for products with a few rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "halley/core/dtype.h"
#include "halley/core/matrix.h"
#include "halley/cuda/gemv/gemv_layout.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_arena.h"

namespace halley::cuda {

struct GemvShape {
  GemvInputs inputs = GemvInputs::kNumbers;
  int bits = 8;
  int64_t N = 0, K = 0;
  /// Inputs that share a scale; K or more: all.
  int64_t group_size = 0;

  int64_t num_tiles() const { return (N + kGemvTileOutputs - 1) / kGemvTileOutputs; }
  int64_t num_pieces() const { return (K + kGemvPieceInputs - 1) / kGemvPieceInputs; }
  bool is_grouped() const { return group_size < K; }
  /// 1 where each output has one scale.
  int64_t num_groups() const;
  /// Scales of a tile lie in entries: those of a piece's groups, or one of several pieces.
  int groups_of_entry() const;
  int64_t num_entries() const;
  size_t code_bytes() const;
  /// Of 16 bits for each group: scales of groups, and zeros where these differ.
  size_t group_bytes() const;
  /// Of the scales: of outputs in f32, of groups in 16 bits.
  size_t scale_bytes() const;
};

/// Empty where a product runs it; otherwise why not.
std::string why_not_gemv(const GemvShape& shape);

/// Scales and zeros of a weight as they are: w = scale * (code - zero).
struct GemvParams {
  /// [N, num_groups()], finite.
  std::span<const float> scales = {};
  /// The same; multiples of 1/2 from 0 to 256.
  std::span<const float> zeros = {};
};

/// Whether zeros are what GemvParams takes.
bool has_gemv_zeros(std::span<const float> zeros);

/// Move-only.
struct GemvWeight {
  GemvShape shape = {};
  DeviceBuffer codes = {};   // [tiles][pieces][gemv_piece_bytes()]
  DeviceBuffer scales = {};  // f32 [N], or 16 bits [tiles][entries][8][groups of entry][2]
  DeviceBuffer zeros = {};   // f16, as scales of 16 bits; empty: all are `zero`
  DType scale_dtype = DType::kF32;
  float zero = 0;

  GemvWeight() = default;
  /// With room for codes, which pack_gemv_rows() fills. Scales of groups are kept in f16 where all
  /// of them are of this type, otherwise in bf16 where they are that; otherwise they are rounded to
  /// f16, or bf16 where f16 has no numbers of their size. Waits until they are in place. Throws
  /// DeviceError where the memory does not suffice.
  GemvWeight(const CudaContext& context, const GemvShape& weight_shape, const GemvParams& params);

  size_t num_bytes() const { return codes.num_bytes() + scales.num_bytes() + zeros.num_bytes(); }
};

/// Queues the packing of rows [first_row, first_row + rows.num_rows) of codes, i8 of K columns in
/// device memory, those of 8 bits less 128. first_row is a multiple of kGemvTileOutputs, and so is
/// the number of rows but where they are the last.
void pack_gemv_rows(const CudaContext& context, ConstMatrix rows, int64_t first_row,
                    const GemvWeight& weight);

/// rows[i, k] = scale * (code - zero) of output first_row + i: one rounding to f32, one to f16 or
/// bf16, the type of `rows`. Of weights for numbers. Rows begin at multiples of 16 bytes.
void decode_gemv_rows(const CudaContext& context, const GemvWeight& weight, int64_t first_row,
                      Matrix rows);

/// The numbers scale * (code - zero) of output n, read from the device word by word: what a check
/// of a product compares with. Waits.
std::vector<float> fetch_gemv_numbers(const CudaStream& stream, const GemvWeight& weight,
                                      int64_t n);

}  // namespace halley::cuda
