// The bf16 panel kernel on AMX tiles: x and W in bf16, accumulators in f32. A pair panel is two
// tiles of weights side by side: 16 pairs of k times 16 features each. The tile instruction
// accumulates 32 k at a time, even and odd k apart (Intel's manual, TDPBF16PS), so every division
// of the work cuts k into the same steps of 32. Subnormal values count as zero: that is how the
// instruction works.
#include "halley/base/check.h"
#include "halley/kernels/gemm/panel_kernel.h"

#if defined(__x86_64__) && defined(__linux__)

#include <algorithm>
#include <cstring>

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,amx-tile,amx-bf16"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,amx-tile,amx-bf16")
#endif

namespace halley::panel_gemm {
namespace {

#define HALLEY_UNROLL _Pragma("GCC unroll 32")
#define HALLEY_INLINE inline __attribute__((always_inline))

constexpr int64_t kTileRows = 16;      // of x and of y
constexpr int64_t kTileRowBytes = 64;  // one row of any tile
constexpr int64_t kStepK = 32;         // k of one tile instruction
constexpr int64_t kStepPairs = kStepK / 2;
constexpr int64_t kPairBytes = kPanelRows * 4;  // one pair of k of a panel
constexpr int64_t kStepBytes = kStepPairs * kPairBytes;
static_assert(kPairBytes == 2 * kTileRowBytes);

// Prefetch distance where panels are streamed: no hardware prefetcher looks beyond the end of a
// page.
constexpr int64_t kAheadBytes = 8192;

// The operand of LDTILECFG. Tiles 0 to 3 are y: two of rows [0, rows0), two of the rows1 rows after
// them; 4 and 5 are x, 6 and 7 are W.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t num_rows[16] = {};

  TileConfig(int64_t rows0, int64_t rows1) {
    std::fill_n(row_bytes, 8, static_cast<uint16_t>(kTileRowBytes));
    for (const int tile : {0, 1, 4}) num_rows[tile] = static_cast<uint8_t>(rows0);
    for (const int tile : {2, 3, 5}) num_rows[tile] = static_cast<uint8_t>(rows1);
    for (const int tile : {6, 7}) num_rows[tile] = static_cast<uint8_t>(kStepPairs);
  }
};
static_assert(sizeof(TileConfig) == 64);

// Completes every store to memory that a tile instruction reads: g++ 12 does not know that it does.
HALLEY_INLINE void publish(const void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

void configure(int64_t rows0, int64_t rows1) {
  // A tile without rows cannot be configured; nothing uses those of a missing second half.
  const TileConfig config(rows0, std::max<int64_t>(1, rows1));
  publish(&config);
  _tile_loadconfig(&config);
}

// One or two tiles of rows that lie behind each other in x and in y.
struct Rows {
  const std::byte* x;
  int64_t x_stride;  // bytes
  float* y;
  int64_t y_stride;
  int64_t rows0, rows1;  // rows1 may be 0

  int64_t num_rows() const { return rows0 + rows1; }
};

template <int kTiles>
HALLEY_INLINE void load_accumulators(const Rows& rows, bool is_first) {
  if (is_first) {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kTiles == 2) {
      _tile_zero(2);
      _tile_zero(3);
    }
    return;
  }
  const auto stride = rows.y_stride * static_cast<int64_t>(sizeof(float));
  publish(rows.y);
  _tile_loadd(0, rows.y, stride);
  _tile_loadd(1, rows.y + 16, stride);
  if constexpr (kTiles == 2) {
    const float* y1 = rows.y + rows.rows0 * rows.y_stride;
    _tile_loadd(2, y1, stride);
    _tile_loadd(3, y1 + 16, stride);
  }
}

template <int kTiles>
HALLEY_INLINE void store_accumulators(const Rows& rows) {
  const auto stride = rows.y_stride * static_cast<int64_t>(sizeof(float));
  _tile_stored(0, rows.y, stride);
  _tile_stored(1, rows.y + 16, stride);
  if constexpr (kTiles == 2) {
    float* y1 = rows.y + rows.rows0 * rows.y_stride;
    _tile_stored(2, y1, stride);
    _tile_stored(3, y1 + 16, stride);
  }
}

// One step of 32 k.
template <int kTiles>
HALLEY_INLINE void accumulate(const std::byte* x0, const std::byte* x1, int64_t x_stride,
                              const std::byte* w) {
  _tile_loadd(6, w, kPairBytes);
  _tile_loadd(4, x0, x_stride);
  _tile_loadd(7, w + kTileRowBytes, kPairBytes);
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  if constexpr (kTiles == 2) {
    _tile_loadd(5, x1, x_stride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

// The last num_pairs < 16 pairs, filled up with zeros: neither x nor the panel goes on.
template <int kTiles>
void accumulate_tail(const Rows& rows, const std::byte* x, const std::byte* w, int64_t num_pairs) {
  alignas(64) std::byte x_step[2 * kTileRows * kTileRowBytes] = {};
  alignas(64) std::byte w_step[kStepBytes] = {};
  for (int64_t row = 0; row < rows.num_rows(); ++row) {
    std::memcpy(x_step + row * kTileRowBytes, x + row * rows.x_stride,
                static_cast<size_t>(num_pairs * 4));
  }
  std::memcpy(w_step, w, static_cast<size_t>(num_pairs * kPairBytes));
  publish(x_step);
  publish(w_step);
  accumulate<kTiles>(x_step, x_step + rows.rows0 * kTileRowBytes, kTileRowBytes, w_step);
}

template <int kTiles, bool kIsStreaming>
void multiply_rows(const Rows& rows, const std::byte* w, int64_t num_pairs, bool is_first) {
  load_accumulators<kTiles>(rows, is_first);
  const std::byte* x = rows.x;
  const int64_t to_second = rows.rows0 * rows.x_stride;
  for (; num_pairs >= kStepPairs; num_pairs -= kStepPairs) {
    if constexpr (kIsStreaming) {
      HALLEY_UNROLL for (int64_t line = 0; line < kStepBytes; line += 64) {
        __builtin_prefetch(w + kAheadBytes + line);
      }
    }
    accumulate<kTiles>(x, x + to_second, rows.x_stride, w);
    x += kTileRowBytes;
    w += kStepBytes;
  }
  if (num_pairs > 0) accumulate_tail<kTiles>(rows, x, w, num_pairs);
  store_accumulators<kTiles>(rows);
}

void add_bias(const Rows& rows, const float* bias) {
  for (int64_t row = 0; row < rows.num_rows(); ++row) {
    float* y = rows.y + row * rows.y_stride;
    for (int64_t n = 0; n < kPanelRows; ++n) y[n] += bias[n];
  }
}

// The block's tiles two by two. Row m of x is at x + m * x_row_words.
template <bool kIsStreaming>
void multiply(const Block& block, const uint32_t* x, int64_t x_row_words, const std::byte* w) {
  const int64_t num_pairs = (block.k_end - block.k_begin + 1) / 2;
  const int64_t row_begin = block.tiles.begin(block.tile_begin);
  const int64_t num_tiles = block.tile_end - block.tile_begin;
  int64_t configured0 = 0, configured1 = 0;
  for (int64_t tile = block.tile_begin; tile < block.tile_end; tile += 2) {
    const int64_t begin = block.tiles.begin(tile);
    const int64_t second = block.tiles.begin(tile + 1);
    const int64_t end = block.tiles.begin(std::min(tile + 2, block.tile_end));
    const Rows rows{.x = reinterpret_cast<const std::byte*>(x + begin * x_row_words),
                    .x_stride = x_row_words * 4,
                    .y = block.y + (begin - row_begin) * block.y_stride,
                    .y_stride = block.y_stride,
                    .rows0 = second - begin,
                    .rows1 = end - second};
    if (rows.rows0 != configured0 || rows.rows1 != configured1) {
      configure(rows.rows0, rows.rows1);
      configured0 = rows.rows0;
      configured1 = rows.rows1;
    }
    const int64_t index = tile - block.tile_begin;
    prefetch_ahead(block, index / 2, (num_tiles + 1) / 2);
    if (rows.rows1 > 0) {
      multiply_rows<2, kIsStreaming>(rows, w, num_pairs, block.k_begin == 0);
    } else {
      multiply_rows<1, kIsStreaming>(rows, w, num_pairs, block.k_begin == 0);
    }
    if (block.bias != nullptr) add_bias(rows, block.bias);
  }
  // Tiles in use would be saved at every switch of threads.
  _tile_release();
}

// [rows][pairs], the rows of a tile's x as they are loaded.
void pack_tile(const float* x, int64_t row_stride, int64_t num_rows, int64_t num_k,
               uint32_t* words) {
  const int64_t num_pairs = (num_k + 1) / 2;
  for (int64_t row = 0; row < num_rows; ++row) {
    bf16_avx512_panel_kernel().pack_tile(x + row * row_stride, row_stride, 1, num_k,
                                         words + row * num_pairs);
  }
}

const std::byte* at_k(const std::byte* panel, int64_t k) { return panel + k / 2 * kPairBytes; }

const std::byte* prepare_block(const Panel& panel, int64_t k_begin, int64_t, std::byte*) {
  return at_k(panel.data, k_begin);
}

void multiply_block(const Block& block) {
  const int64_t num_pairs = (block.k_end - block.k_begin + 1) / 2;
  multiply<false>(block, block.x.words + block.k_begin / 2 * block.tiles.num_rows, num_pairs,
                  block.w);
}

void multiply_direct(const Block& block) {
  multiply<true>(block, block.x.words + block.k_begin / 2, block.x.row_stride,
                 at_k(block.panel.data, block.k_begin));
}

constexpr PanelKernel kKernel = {
    .tile_rows_max = kTileRows,
    .direct_tile_rows_max = kTileRows,
    .direct_rows_max = 2 * kTileRows,  // one pass over the panel
    .k_per_word = 2,
    .block_k = 256,  // 16 kB of weights and 16 kB of x in a first-level cache of 48 kB
    .direct_block_k = 8192,
    .pack_tile = pack_tile,
    .prepare_block = prepare_block,
    .multiply_block = multiply_block,
    .multiply_direct = multiply_direct,
};
static_assert(kKernel.block_k % kStepK == 0 && kKernel.direct_block_k % kStepK == 0);

}  // namespace
}  // namespace halley::panel_gemm

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace halley::panel_gemm {
namespace {

bool cpu_has_amx_bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (edx & kAmxBf16) != 0 && (edx & kAmxTile) != 0;
}

// Whether the operating system keeps the tiles of every thread, and lets this process have them.
bool kernel_grants_tiles() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kOsXsave = 1u << 27;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kOsXsave) == 0) return false;
  constexpr unsigned kTileConfig = 1u << 17, kTileData = 1u << 18;
  asm volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  if ((eax & kTileConfig) == 0 || (eax & kTileData) == 0) return false;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of <asm/prctl.h>, Linux 5.16
  constexpr long kTileDataFeature = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileDataFeature) == 0;
}

const char* find_rejection() {
  // Every processor with AMX has the conversion to bf16, which is AVX512-BF16.
  if (!cpu_has_amx_bf16() || !has_avx512_bf16()) return "this CPU has no AMX-BF16";
  if (!kernel_grants_tiles()) return "the kernel rejected AMX";
  return "";
}

}  // namespace

const PanelKernel& bf16_amx_panel_kernel() { return kKernel; }

std::string amx_bf16_rejection() {
  static const char* const rejection = find_rejection();
  return rejection;
}

}  // namespace halley::panel_gemm

#else

namespace halley::panel_gemm {

const PanelKernel& bf16_amx_panel_kernel() {
  HALLEY_CHECK(false, "bf16_amx chosen where it was not compiled");
  return f32_panel_kernel();
}

std::string amx_bf16_rejection() { return "this CPU has no AMX-BF16"; }

}  // namespace halley::panel_gemm

#endif
