// Partitions a panel GEMM among blocks and threads.
#include <algorithm>
#include <array>
#include <cstring>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/core/host_buffer.h"
#include "halley/kernels/gemm/panel_kernel.h"

namespace halley::panel_gemm {
namespace {

// Rows of x between two passes over the weights: with 256 k in f32 they take 192 kB of a
// second-level cache of 512 kB, and 192 uses of a widened weight make the widening cheap.
constexpr int64_t kBlockRows = 192;
// Panels that share a block of x while it is in the second-level cache.
constexpr int64_t kGroupPanels = 4;
// A loop with fewer tasks a thread than this leaves threads idle at its end.
constexpr int64_t kTasksPerThread = 4;
// A task below this size costs more to hand out than to run.
constexpr int64_t kTaskBytes = 64 * 1024;

constexpr int64_t kScratchBlockK = 512;

// Bytes of one panel [K, kPanelRows].
size_t panel_bytes(const PackedWeight& weight) {
  return packed_bytes(weight.layout, kPanelRows, weight.K);
}

// Grows and stays: a prefill would otherwise map and fault in megabytes for every layer.
uint32_t* packing_memory(size_t num_words) {
  thread_local HostBuffer buffer;
  if (buffer.num_bytes() < num_words * sizeof(uint32_t)) {
    buffer = HostBuffer();
    buffer = HostBuffer(num_words * sizeof(uint32_t));
  }
  return reinterpret_cast<uint32_t*>(buffer.data());
}

struct Operation {
  const PanelKernel& kernel;
  const PackedWeight& weight;
  const float* bias;
  PackedX x;
  RowTiles tiles;
  Matrix y;
};

const std::byte* panel_data(const Operation& op, int64_t panel) {
  return op.weight.data.data() + static_cast<size_t>(panel) * panel_bytes(op.weight);
}

Panel panel_at(const Operation& op, int64_t panel) {
  Panel result{panel_data(op, panel)};
  if (is_quantized(op.weight.layout)) {
    result.groups = op.weight.group(panel, 0);
    result.quant = &op.weight.quant;
  }
  if (has_low_precision(op.weight.layout)) result.lower = result.data + panel_bytes(op.weight) / 2;
  return result;
}

// The byte offset of input k in a panel, or of its upper byte: k is a multiple of kQuadUnitInputs,
// or the end.
int64_t bytes_before(const Operation& op, int64_t k) {
  const auto num_bytes = static_cast<int64_t>(packed_bytes(op.weight.layout, kPanelRows, k));
  return has_low_precision(op.weight.layout) ? num_bytes / 2 : num_bytes;
}

// The destination of one panel of y: y itself, or, for the last panel where N is no multiple of
// kPanelRows, rows of full width from which copy_out() takes the part that exists.
struct PanelOutput {
  float* data = nullptr;
  int64_t stride = 0;
  const float* bias = nullptr;
  std::array<float, kPanelRows> padded_bias;
};

void open_panel(const Operation& op, int64_t panel, int64_t row_begin, float* full_rows,
                PanelOutput* out) {
  const int64_t n_begin = panel * kPanelRows;
  const int64_t num_cols = std::min(kPanelRows, op.weight.N - n_begin);
  out->bias = op.bias == nullptr ? nullptr : op.bias + n_begin;
  if (num_cols == kPanelRows) {
    out->data = op.y.row<float>(row_begin) + n_begin;
    out->stride = op.y.row_stride;
    return;
  }
  out->data = full_rows;
  out->stride = kPanelRows;
  if (op.bias != nullptr) {
    out->padded_bias.fill(0.0f);
    std::copy_n(op.bias + n_begin, num_cols, out->padded_bias.data());
    out->bias = out->padded_bias.data();
  }
}

void copy_out(const Operation& op, int64_t panel, int64_t row_begin, int64_t row_end,
              const PanelOutput& out) {
  const int64_t n_begin = panel * kPanelRows;
  const int64_t num_cols = op.weight.N - n_begin;
  if (num_cols >= kPanelRows) return;
  for (int64_t m = row_begin; m < row_end; ++m) {
    std::copy_n(out.data + (m - row_begin) * kPanelRows, num_cols, op.y.row<float>(m) + n_begin);
  }
}

// Small M: the panel is read once, in place.
void run_direct_panel(const Operation& op, int64_t panel) {
  alignas(64) std::array<float, 64 * kPanelRows> full_rows;
  HALLEY_DCHECK(op.tiles.num_rows <= 64, op.tiles.num_rows);
  PanelOutput out;
  open_panel(op, panel, 0, full_rows.data(), &out);
  Block block;
  block.panel = panel_at(op, panel);
  block.x = op.x;
  block.tiles = op.tiles;
  block.tile_end = op.tiles.num_tiles;
  block.y = out.data;
  block.y_stride = out.stride;
  for (int64_t k = 0; k < op.weight.K; k += op.kernel.direct_block_k) {
    block.k_begin = k;
    block.k_end = std::min(op.weight.K, k + op.kernel.direct_block_k);
    block.bias = block.k_end == op.weight.K ? out.bias : nullptr;
    op.kernel.multiply_direct(block);
  }
  copy_out(op, panel, 0, op.tiles.num_rows, out);
}

void run_direct(ExecContext& context, const Operation& op) {
  const int64_t num_panels = ceil_div(op.weight.N, kPanelRows);
  const auto bytes = static_cast<int64_t>(panel_bytes(op.weight));
  const int64_t panels_per_task = std::max<int64_t>(1, kTaskBytes / bytes);
  context.pool.run(ceil_div(num_panels, panels_per_task), [&](int64_t task, int) {
    const int64_t end = std::min(num_panels, (task + 1) * panels_per_task);
    for (int64_t panel = task * panels_per_task; panel < end; ++panel) run_direct_panel(op, panel);
  });
}

// The work partition: how many rows take some panels at a time.
struct Division {
  RowTiles row_blocks;  // in tiles of rows
  int64_t group_panels = kGroupPanels;
  int64_t num_groups = 0;

  int64_t num_tasks() const { return row_blocks.num_tiles * num_groups; }
};

Division divide(const Operation& op, int num_threads) {
  const int64_t num_panels = ceil_div(op.weight.N, kPanelRows);
  Division division;
  division.row_blocks.num_rows = op.tiles.num_tiles;
  division.row_blocks.num_tiles = ceil_div(op.tiles.num_rows, kBlockRows);
  division.num_groups = ceil_div(num_panels, division.group_panels);
  const int64_t num_tasks_wanted = num_threads * kTasksPerThread;
  while (division.num_tasks() < num_tasks_wanted && division.group_panels > 1) {
    division.group_panels /= 2;
    division.num_groups = ceil_div(num_panels, division.group_panels);
  }
  // More row blocks widen every weight more often: only where cores would have nothing to do.
  while (division.num_tasks() < num_threads &&
         division.row_blocks.num_tiles * 2 <= op.tiles.num_tiles) {
    division.row_blocks.num_tiles *= 2;
  }
  return division;
}

// Tiles [tile_begin, tile_end) times panels [panel_begin, panel_end). The blocks of x are the outer
// loop, so that one stays in the second-level cache while the panels pass.
void run_blocks(const Operation& op, int64_t tile_begin, int64_t tile_end, int64_t panel_begin,
                int64_t panel_end) {
  alignas(64) std::array<std::byte, kScratchBlockK * kPanelRows * 4> scratch;
  alignas(64) std::array<float, (kBlockRows + 64) * kPanelRows> full_rows;
  const int64_t row_begin = op.tiles.begin(tile_begin);
  const int64_t row_end = op.tiles.begin(tile_end);
  HALLEY_DCHECK(row_end - row_begin <= kBlockRows + 64, row_begin, row_end);
  const int64_t K = op.weight.K;
  for (int64_t k = 0; k < K; k += op.kernel.block_k) {
    const int64_t k_end = std::min(K, k + op.kernel.block_k);
    const int64_t offset = bytes_before(op, k);
    const int64_t end_offset = bytes_before(op, k_end);
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      PanelOutput out;
      open_panel(op, panel, row_begin, full_rows.data(), &out);
      Block block;
      block.w = op.kernel.prepare_block(panel_at(op, panel), k, k_end, scratch.data());
      if (panel + 1 < panel_end) {
        block.ahead = panel_data(op, panel + 1) + offset;
        block.ahead_bytes = end_offset - offset;
      } else if (k_end < K) {
        block.ahead = panel_data(op, panel_begin) + end_offset;
        block.ahead_bytes = bytes_before(op, std::min(K, k_end + op.kernel.block_k)) - end_offset;
      }
      block.k_begin = k;
      block.k_end = k_end;
      block.x = op.x;
      block.tiles = op.tiles;
      block.tile_begin = tile_begin;
      block.tile_end = tile_end;
      block.y = out.data;
      block.y_stride = out.stride;
      block.bias = k_end == K ? out.bias : nullptr;
      op.kernel.multiply_block(block);
      if (k_end == K) copy_out(op, panel, row_begin, row_end, out);
    }
  }
}

void run_blocked(ExecContext& context, const Operation& op) {
  const int64_t num_panels = ceil_div(op.weight.N, kPanelRows);
  const Division division = divide(op, context.pool.num_threads());
  const int64_t num_row_blocks = division.row_blocks.num_tiles;
  context.pool.run(division.num_tasks(), [&](int64_t task, int) {
    const int64_t group = task / num_row_blocks;
    const int64_t row_block = task % num_row_blocks;
    const int64_t panel_begin = group * division.group_panels;
    run_blocks(op, division.row_blocks.begin(row_block), division.row_blocks.begin(row_block + 1),
               panel_begin, std::min(num_panels, panel_begin + division.group_panels));
  });
}

// x as rows: in place where the kernel multiplies in f32, otherwise rounded row by row.
PackedX rows_of(const PanelKernel& kernel, ConstMatrix x) {
  const int64_t K = x.num_cols;
  if (kernel.k_per_word == 1) return {x.row<uint32_t>(0), x.row_stride};
  const int64_t words_per_row = ceil_div(K, kernel.k_per_word);
  uint32_t* words = packing_memory(static_cast<size_t>(x.num_rows * words_per_row));
  for (int64_t m = 0; m < x.num_rows; ++m) {
    kernel.pack_tile(x.row<float>(m), x.row_stride, 1, K, words + m * words_per_row);
  }
  return {words, words_per_row};
}

PackedX tiles_of(const PanelKernel& kernel, ExecContext& context, ConstMatrix x,
                 const RowTiles& tiles) {
  const int64_t K = x.num_cols;
  const int64_t words_per_row = ceil_div(K, kernel.k_per_word);
  uint32_t* words = packing_memory(static_cast<size_t>(x.num_rows * words_per_row));
  context.pool.run(tiles.num_tiles, [&](int64_t tile, int) {
    const int64_t begin = tiles.begin(tile);
    const int64_t num_rows = tiles.begin(tile + 1) - begin;
    for (int64_t k = 0; k < K; k += kernel.block_k) {
      const int64_t num_k = std::min(K - k, kernel.block_k);
      const int64_t block_begin = k / kernel.k_per_word * x.num_rows;
      kernel.pack_tile(x.row<float>(begin) + k, x.row_stride, num_rows, num_k,
                       words + block_begin + begin * ceil_div(num_k, kernel.k_per_word));
    }
  });
  return {words, 0};
}

// The sum over nothing: zero, plus the bias.
void fill_with_bias(const float* bias, Matrix y) {
  for (int64_t m = 0; m < y.num_rows; ++m) {
    for (int64_t n = 0; n < y.num_cols; ++n) y.row<float>(m)[n] = bias == nullptr ? 0.0f : bias[n];
  }
}

}  // namespace

void run(const PanelKernel& kernel, ExecContext& context, const PackedWeight& weight,
         const float* bias, ConstMatrix x, Matrix y) {
  HALLEY_CHECK(x.dtype == DType::kF32 && y.dtype == DType::kF32, x.dtype, y.dtype);
  HALLEY_CHECK(x.num_cols == weight.K && y.num_cols == weight.N, x.num_cols, weight.K, y.num_cols,
               weight.N);
  HALLEY_CHECK(x.num_rows == y.num_rows, x.num_rows, y.num_rows);
  HALLEY_CHECK(kernel.block_k <= kScratchBlockK && kernel.block_k % kQuadUnitInputs == 0,
               kernel.block_k);
  HALLEY_CHECK(kernel.direct_rows_max <= 64, kernel.direct_rows_max);
  const int64_t M = x.num_rows;
  if (M == 0 || weight.N == 0) return;
  if (is_quantized(weight.layout)) {
    const int64_t group_size = weight.quant.group_size;
    HALLEY_CHECK(group_size > 0, group_size);
    HALLEY_CHECK(weight.quant.groups.num_bytes() == group_bytes(weight.N, weight.K, group_size),
                 weight.quant.groups.num_bytes(), weight.N, weight.K, group_size);
  }
  if (weight.K == 0) return fill_with_bias(bias, y);
  if (M <= kernel.direct_rows_max) {
    const RowTiles tiles{M, ceil_div(M, kernel.direct_tile_rows_max)};
    run_direct(context, {kernel, weight, bias, rows_of(kernel, x), tiles, y});
  } else {
    const RowTiles tiles{M, ceil_div(M, kernel.tile_rows_max)};
    run_blocked(context, {kernel, weight, bias, tiles_of(kernel, context, x, tiles), tiles, y});
  }
}

}  // namespace halley::panel_gemm
