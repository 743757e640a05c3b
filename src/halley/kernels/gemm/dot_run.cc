// Partitions an integer dot-product GEMM among spans, panels and threads.
#include <algorithm>
#include <array>
#include <numeric>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/core/host_buffer.h"
#include "halley/kernels/gemm/dot_kernel.h"
#include "halley/kernels/gemm/pack_quads.h"
#include "halley/kernels/gemm/panel_kernel.h"

namespace halley::dot_gemm {
namespace {

using panel_gemm::RowTiles;

// Up to this M, a thread reads one panel after the other from its begin to its end: memory in its
// order. The slices of these rows stay in the second-level cache.
constexpr int64_t kStreamedRows = 16;
// Otherwise rows between two passes over the weights: a span of their slices takes 48 kB of a
// second-level cache, and that many uses of unpacked weights make the unpacking cheap.
constexpr int64_t kBlockRows = 128;
// Panels that share a span of x while it is in the second-level cache.
constexpr int64_t kGroupPanels = 4;
// A loop with fewer tasks a thread than this leaves threads idle at its end.
constexpr int64_t kTasksPerThread = 4;
// A task below this size costs more to hand out than to run.
constexpr int64_t kTaskBytes = 64 * 1024;
// Prefetch distance where panels are streamed: no hardware prefetcher looks beyond the end of a
// page.
constexpr int64_t kAheadBytes = 8192;

// Rows of the accumulators of a task: kBlockRows, and what tiles of unequal size add.
constexpr int64_t kTaskRowsMax = kBlockRows + 2 * kTileSliceRows;

// x as the kernel reads it.
struct PackedX {
  uint32_t* words = nullptr;  // [spans][tiles][kSpanQuads * words_per_quad][slice rows of the tile]
  BlockFactors* factors = nullptr;  // [blocks of all spans][M]
  float* scales = nullptr;          // [M]
};

struct Operation {
  const DotKernel& kernel;
  const DotCore& core;
  const PackedWeight& weight;
  const float* bias;
  Matrix y;
  RowTiles tiles;
  PackedX x;
  int64_t num_panels = 0;
  int64_t num_spans = 0;
  int64_t block_inputs = 0;
  int64_t blocks_per_span = 0;
  int64_t num_groups = 0;
  int64_t panel_bytes = 0;
  int64_t span_bytes = 0;
  bool reads_packed = false;  // the core reads 4-bit weights in place

  int64_t row_words() const {  // of one row's span
    return kernel.num_slices * kSpanQuads * core.words_per_quad;
  }
};

// The buffer grows and stays: a prefill would otherwise map and fault in megabytes for every layer.
std::byte* packing_memory(size_t num_bytes) {
  thread_local HostBuffer buffer;
  if (buffer.num_bytes() < num_bytes) {
    buffer = HostBuffer();
    buffer = HostBuffer(num_bytes);
  }
  return buffer.data();
}

void reserve_x(Operation* op) {
  const int64_t M = op->tiles.num_rows;
  const int64_t num_words = op->num_spans * M * op->row_words();
  const int64_t num_factors = op->num_spans * op->blocks_per_span * M;
  const auto words_bytes = static_cast<size_t>(num_words) * sizeof(uint32_t);
  const auto factors_bytes = static_cast<size_t>(num_factors) * sizeof(BlockFactors);
  std::byte* memory =
      packing_memory(words_bytes + factors_bytes + static_cast<size_t>(M) * sizeof(float));
  op->x.words = reinterpret_cast<uint32_t*>(memory);
  op->x.factors = reinterpret_cast<BlockFactors*>(memory + words_bytes);
  op->x.scales = reinterpret_cast<float*>(memory + words_bytes + factors_bytes);
}

void pack_x(ExecContext& context, const Operation& op, ConstMatrix x) {
  context.pool.run(op.tiles.num_tiles, [&](int64_t tile, int) {
    const int64_t begin = op.tiles.begin(tile);
    const int64_t end = op.tiles.begin(tile + 1);
    for (int64_t m = begin; m < end; ++m) {
      RowSlices row;
      row.x = x.row<float>(m);
      row.quant = &op.weight.quant;
      row.K = op.weight.K;
      row.block_inputs = op.block_inputs;
      row.words_per_quad = op.core.words_per_quad;
      row.words = op.x.words + begin * op.row_words() + (m - begin) * op.kernel.num_slices;
      row.word_stride = (end - begin) * op.kernel.num_slices;
      row.span_stride = op.tiles.num_rows * op.row_words();
      row.factors = op.x.factors + m;
      row.factors_stride = op.tiles.num_rows;
      row.magnitude = context.row_magnitude(m);
      op.x.scales[m] = op.kernel.make_slices(row);
    }
  });
}

// Some tiles of x times some panels, and their y before scales and bias.
struct Task {
  int64_t tile_begin = 0, tile_end = 0;
  int64_t panel_begin = 0, panel_end = 0;
  float* y = nullptr;  // [panels][rows][kPanelRows]
};

// One span of one panel, whose quantized weights the core reads at `weights`.
struct PanelSpan {
  int64_t span;
  const uint8_t* weights;
  int64_t ahead_bytes;  // of DotArgs
  int64_t num_inputs;
  std::array<const float*, kBlocksPerSpanMax> groups;  // of each block
};

void set_groups(const Operation& op, int64_t panel, PanelSpan* at) {
  const float* groups =
      op.weight.quant.groups.as<float>().data() + panel * op.num_groups * 2 * kPanelRows;
  int64_t k = at->span * kSpanInputs;
  for (int64_t block = 0; block < ceil_div(at->num_inputs, op.block_inputs); ++block) {
    at->groups[static_cast<size_t>(block)] =
        groups + k / op.weight.quant.group_size * 2 * kPanelRows;
    k += op.block_inputs;
  }
}

// The span times all tiles of the task; y is the panel's.
void multiply_span(const Operation& op, const Task& task, const PanelSpan& at, float* y) {
  alignas(64) std::array<int32_t, kTileSliceRows * kPanelRows> acc;
  const int64_t M = op.tiles.num_rows;
  const int64_t quad_bytes = op.reads_packed ? kQuadValues / 2 : kQuadValues;
  const auto& rows = op.reads_packed ? *op.core.multiply_u4 : op.core.multiply_bytes;
  const int64_t row_words = op.row_words();
  const BlockFactors* span_factors = op.x.factors + at.span * op.blocks_per_span * M;
  int64_t begin = op.tiles.begin(task.tile_begin);
  for (int64_t tile = task.tile_begin; tile < task.tile_end; ++tile) {
    const int64_t end = op.tiles.begin(tile + 1);
    const int64_t num_rows = end - begin;
    const int64_t slice_rows = num_rows * op.kernel.num_slices;
    const uint32_t* words = op.x.words + (at.span * M + begin) * row_words;
    const BlockFactors* factors = span_factors + begin;
    for (int64_t k = 0, block = 0; k < at.num_inputs; k += op.block_inputs, ++block) {
      // Behind K there are zeros, in the weights as in the slices.
      const int64_t num_inputs = std::min(op.block_inputs, at.num_inputs - k);
      rows[static_cast<size_t>(slice_rows - 1)](
          {at.weights + k / 4 * quad_bytes, words + k / 4 * op.core.words_per_quad * slice_rows,
           ceil_div(num_inputs, int64_t{8}), op.kernel.flush_pairs, acc.data(), at.ahead_bytes});
      op.kernel.add_block({acc.data(), at.groups[static_cast<size_t>(block)],
                           op.weight.quant.zero_kind, factors, num_rows, y});
      factors += M;
    }
    y += num_rows * kPanelRows;
    begin = end;
  }
}

void write_row(const float* acc, float scale, const float* bias, int64_t num_cols, float* y) {
  if (bias == nullptr) {
    for (int64_t n = 0; n < num_cols; ++n) y[n] = scale * acc[n];
  } else {
    for (int64_t n = 0; n < num_cols; ++n) y[n] = scale * acc[n] + bias[n];
  }
}

void write_panel(const Operation& op, const Task& task, int64_t panel, const float* acc) {
  const int64_t n_begin = panel * kPanelRows;
  const int64_t num_cols = std::min(kPanelRows, op.weight.N - n_begin);
  const float* bias = op.bias == nullptr ? nullptr : op.bias + n_begin;
  const int64_t row_end = op.tiles.begin(task.tile_end);
  for (int64_t m = op.tiles.begin(task.tile_begin); m < row_end; ++m, acc += kPanelRows) {
    float* y = op.y.row<float>(m) + n_begin;
    if (num_cols == kPanelRows) {
      write_row(acc, op.x.scales[m], bias, kPanelRows, y);  // a length that the compiler knows
    } else {
      write_row(acc, op.x.scales[m], bias, num_cols, y);
    }
  }
}

// Brings the weights of a span into the second-level cache: the first holds what is multiplied now.
void prefetch(const std::byte* from, int64_t num_bytes) {
  constexpr int64_t kLine = 64;
  for (int64_t byte = 0; byte < num_bytes; byte += kLine) {
    __builtin_prefetch(from + byte, /*rw=*/0, /*locality=*/2);
  }
}

// The spans are the outer loop, so that the slices of one stay in the second-level cache while the
// panels pass.
void run_task(const Operation& op, const Task& task) {
  alignas(64) std::array<uint8_t, kSpanQuads * kQuadValues> scratch;
  const int64_t num_panels = task.panel_end - task.panel_begin;
  const int64_t panel_acc =
      (op.tiles.begin(task.tile_end) - op.tiles.begin(task.tile_begin)) * kPanelRows;
  std::fill_n(task.y, num_panels * panel_acc, 0.0f);
  PanelSpan at;
  for (at.span = 0; at.span < op.num_spans; ++at.span) {
    at.num_inputs = std::min(kSpanInputs, op.weight.K - at.span * kSpanInputs);
    for (int64_t i = 0; i < num_panels; ++i) {
      const int64_t panel = task.panel_begin + i;
      const std::byte* packed =
          op.weight.data.data() + panel * op.panel_bytes + at.span * op.span_bytes;
      // The task reads on there; a single panel goes on behind its end.
      at.ahead_bytes = kAheadBytes;
      if (num_panels > 1) {
        at.ahead_bytes = i + 1 < num_panels ? op.panel_bytes : op.span_bytes - i * op.panel_bytes;
      }
      if (op.reads_packed) {
        at.weights = reinterpret_cast<const uint8_t*>(packed);
      } else {
        if (!op.kernel.is_in_place) prefetch(packed + at.ahead_bytes, op.span_bytes);
        at.weights =
            op.kernel.unpack(packed, ceil_div(at.num_inputs, kQuadUnitInputs), scratch.data());
        if (!op.kernel.is_in_place) at.ahead_bytes = 0;
      }
      set_groups(op, panel, &at);
      multiply_span(op, task, at, task.y + i * panel_acc);
    }
  }
  for (int64_t i = 0; i < num_panels; ++i) {
    write_panel(op, task, task.panel_begin + i, task.y + i * panel_acc);
  }
}

void run_streamed(ExecContext& context, const Operation& op) {
  const int64_t panels_per_task =
      std::max<int64_t>(1, kTaskBytes / std::max<int64_t>(1, op.panel_bytes));
  context.pool.run(ceil_div(op.num_panels, panels_per_task), [&](int64_t index, int) {
    alignas(64) std::array<float, kStreamedRows * kPanelRows> y;
    const int64_t end = std::min(op.num_panels, (index + 1) * panels_per_task);
    for (int64_t panel = index * panels_per_task; panel < end; ++panel) {
      run_task(op, {0, op.tiles.num_tiles, panel, panel + 1, y.data()});
    }
  });
}

void run_blocked(ExecContext& context, const Operation& op) {
  const int64_t num_threads = context.pool.num_threads();
  RowTiles blocks{op.tiles.num_tiles, ceil_div(op.tiles.num_rows, kBlockRows)};  // of tiles
  int64_t group_panels = kGroupPanels;
  while (ceil_div(op.num_panels, group_panels) * blocks.num_tiles < num_threads * kTasksPerThread &&
         group_panels > 1) {
    group_panels /= 2;
  }
  const int64_t num_groups = ceil_div(op.num_panels, group_panels);
  // More row blocks unpack every weight more often: only where cores would have nothing to do.
  while (num_groups * blocks.num_tiles < num_threads &&
         blocks.num_tiles * 2 <= op.tiles.num_tiles) {
    blocks.num_tiles *= 2;
  }
  context.pool.run(num_groups * blocks.num_tiles, [&](int64_t index, int) {
    alignas(64) std::array<float, kGroupPanels * kTaskRowsMax * kPanelRows> y;
    const int64_t group = index / blocks.num_tiles;
    const int64_t block = index % blocks.num_tiles;
    const Task task{blocks.begin(block), blocks.begin(block + 1), group * group_panels,
                    std::min(op.num_panels, (group + 1) * group_panels), y.data()};
    HALLEY_DCHECK(op.tiles.begin(task.tile_end) - op.tiles.begin(task.tile_begin) <= kTaskRowsMax,
                  task.tile_begin, task.tile_end);
    run_task(op, task);
  });
}

}  // namespace

int64_t block_inputs(int64_t group_size, int64_t K) {
  return group_size >= K ? kSpanInputs : std::gcd(group_size, kSpanInputs);
}

void run(const DotKernel& kernel, ExecContext& context, const PackedWeight& weight,
         const float* bias, ConstMatrix x, Matrix y) {
  HALLEY_CHECK(x.dtype == DType::kF32 && y.dtype == DType::kF32, x.dtype, y.dtype);
  HALLEY_CHECK(x.num_cols == weight.num_inputs() && y.num_cols == weight.N, x.num_cols,
               weight.num_inputs(), y.num_cols, weight.N);
  HALLEY_CHECK(x.num_rows == y.num_rows, x.num_rows, y.num_rows);
  const int64_t M = x.num_rows;
  if (M == 0 || weight.N == 0) return;
  const int64_t K = weight.K;
  const RowTiles tiles{M, ceil_div(M, kTileSliceRows / kernel.num_slices)};
  Operation op{kernel, kernel.core(), weight, bias, y, tiles, {}};
  op.num_panels = ceil_div(weight.N, kPanelRows);
  op.num_spans = ceil_div(K, kSpanInputs);
  op.block_inputs = block_inputs(weight.quant.group_size, K);
  op.blocks_per_span = kSpanInputs / op.block_inputs;
  op.num_groups = weight.num_groups();
  op.panel_bytes = static_cast<int64_t>(packed_bytes(weight.layout, kPanelRows, K));
  op.span_bytes = kSpanUnits * kQuadValues * code_bits(weight.layout);
  op.reads_packed = kernel.is_u4 && op.core.multiply_u4 != nullptr && tiles.num_tiles == 1;
  HALLEY_CHECK(op.block_inputs >= kBlockInputsMin, weight.quant.group_size, K);
  reserve_x(&op);
  pack_x(context, op, x);
  if (M <= kStreamedRows) {
    run_streamed(context, op);
  } else {
    run_blocked(context, op);
  }
}

}  // namespace halley::dot_gemm
