// The interface of a panel GEMM's arithmetic, for one weight layout and one instruction set, and
// the work partition that all of them share. Internal to kernels/gemm.
//
// y[m][n] is one chain of fused multiply-adds over k = 0, 1, ..., K-1 that starts at zero, plus the
// bias at the end. Blocks and tiles only say when a part of the chain runs: the partial sum waits
// in y as f32, so that every division gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/core/packed_weight.h"

namespace halley::panel_gemm {

/// Rows of x divided into tiles whose sizes differ by at most one.
struct RowTiles {
  int64_t num_rows = 0;
  int64_t num_tiles = 0;

  /// First row of a tile; begin(num_tiles) is num_rows.
  int64_t begin(int64_t tile) const { return tile * num_rows / num_tiles; }
};

/// x as a kernel reads it: words of 4 bytes, each one f32 or one pair of bf16 along k. Either the
/// rows as they are, [rows][row_stride], or blocks of block_k one after the other, each of them
/// tile after tile, [words of the block][rows of the tile] or the reverse as the kernel
/// wants it: one pass over a panel's block reads consecutive words.
struct PackedX {
  const uint32_t* words = nullptr;
  int64_t row_stride = 0;  // words; unused in tiles
};

/// One panel of a weight.
struct Panel {
  const std::byte* data = nullptr;
  const std::byte* lower = nullptr;  // kNestedF16Quad: the lower bytes; `data` is the upper ones
  // Quantized layouts: this panel's scales and zeros, and how they dequantize.
  const float* groups = nullptr;
  const QuantParams* quant = nullptr;
};

/// multiply_block() and multiply_direct() add a block of one panel times some tiles of x to y
/// [rows, kPanelRows]; they store it where the block is the first along K.
struct Block {
  const std::byte* w = nullptr;  // the result of prepare_block(), for multiply_block()
  Panel panel;                   // for multiply_direct()
  int64_t k_begin = 0, k_end = 0;
  PackedX x;
  RowTiles tiles;
  int64_t tile_begin = 0, tile_end = 0;
  float* y = nullptr;  // row 0 is the first row of tile_begin
  int64_t y_stride = 0;
  const float* bias = nullptr;  // kPanelRows values, added behind the last block; or null
  // The weights of the next block, to be prefetched meanwhile; or null.
  const std::byte* ahead = nullptr;
  int64_t ahead_bytes = 0;
};

/// Prefetches part `index` of num_parts of the block's `ahead` into the second-level cache: the
/// first holds the current operands.
inline void prefetch_ahead(const Block& block, int64_t index, int64_t num_parts) {
  constexpr int64_t kLine = 64;
  const int64_t num_lines = block.ahead_bytes / kLine;
  const int64_t end = num_lines * (index + 1) / num_parts;
  for (int64_t line = num_lines * index / num_parts; line < end; ++line) {
    __builtin_prefetch(block.ahead + line * kLine, /*rw=*/0, /*locality=*/2);
  }
}

/// The arithmetic for one layout. All functions may run on several threads at once.
struct PanelKernel {
  int64_t tile_rows_max;         // rows of x in one tile of a block
  int64_t direct_tile_rows_max;  // and where panels are read in place
  int64_t direct_rows_max;       // up to so many rows, they are
  int64_t k_per_word;            // 1: x stays f32; 2: x is rounded to pairs of bf16
  int64_t block_k;               // k of one block of tiles, a multiple of kQuadUnitInputs
  int64_t direct_block_k;        // k of one block of rows, a multiple of kQuadUnitInputs

  /// Packs x [num_rows, num_k] f32 into words [ceil(num_k / k_per_word)][num_rows] or the reverse,
  /// as multiply_block() reads them; for one row the two are the same.
  void (*pack_tile)(const float* x, int64_t row_stride, int64_t num_rows, int64_t num_k,
                    uint32_t* words);
  /// Returns the block [k_begin, k_end) of a panel as multiply_block() wants it: in `scratch`
  /// (block_k * kPanelRows words, aligned to 64 bytes), or in place.
  const std::byte* (*prepare_block)(const Panel& panel, int64_t k_begin, int64_t k_end,
                                    std::byte* scratch);
  /// Takes x in tiles.
  void (*multiply_block)(const Block& block);
  /// Takes x as rows, and the panel itself.
  void (*multiply_direct)(const Block& block);
};

/// y = x W^T + bias with one kernel, on all threads of the context.
void run(const PanelKernel& kernel, ExecContext& context, const PackedWeight& weight,
         const float* bias, ConstMatrix x, Matrix y);

/// Each returns the kernel for this machine, or for the target that Highway's dispatch was set to.
const PanelKernel& f32_panel_kernel();
const PanelKernel& f16_panel_kernel();
const PanelKernel& bf16_panel_kernel();

/// The kernels of the quad layouts, which dequantize weights to f32 on the way. Precision counts
/// where has_low_precision(layout).
const PanelKernel& quad_panel_kernel(PackedLayout layout, Precision precision = Precision::kFull);

/// bf16 times bf16 with the AVX512-BF16 instructions; call only where has_avx512_bf16().
const PanelKernel& bf16_avx512_panel_kernel();
bool has_avx512_bf16();

/// bf16 times bf16 in AMX tiles; call only where amx_bf16_rejection() is empty. The chain of an
/// accumulator is then one of steps of 32 k.
const PanelKernel& bf16_amx_panel_kernel();
/// Says why AMX cannot be used; empty where it can. The first call asks the operating system for
/// permission, which then holds for the whole process.
std::string amx_bf16_rejection();

}  // namespace halley::panel_gemm
