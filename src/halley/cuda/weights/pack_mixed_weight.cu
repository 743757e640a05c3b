#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/mixed_gemm/mixed_pack.h"
#include "halley/cuda/runtime/launch.cuh"
#include "halley/cuda/weights/pack_mixed_weight.h"
#include "halley/cuda/weights/quad_code.h"

namespace halley::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChunkPanels = kChunkOutputs / static_cast<int>(kPanelRows);
constexpr int kChunkUnits = kChunkInputs / static_cast<int>(kQuadUnitInputs);
/// Bytes of a chunk at most: four groups of 16 bits.
constexpr int kChunkBytesMax = chunk_bytes(MixedKind::kU8F16, 32);
/// A scale loses no more than this, relatively, in the activations' type: one of f16 and bf16 has
/// 11 and 8 bits, and fewer where it is so small that its weights hardly count. That of 8 bits is
/// smaller, and may have 8 bits in both.
constexpr float kScaleErrorF16 = 0x1p-11f, kScaleErrorBf16 = 0x1p-8f;
constexpr int kFactorMax = 255;

struct PackArguments {
  MixedPanels panels;
  int group_size;  // as stored
  int64_t num_groups;
  uint8_t* chunks;
  uint32_t* rejections;
};

struct GroupParams {
  float scale, zero;
};

__device__ GroupParams group_params(const QuadPanels& quads, int64_t num_groups, int64_t n,
                                    int64_t group) {
  const float* params =
      quads.groups + (n / kPanelRows * num_groups + group) * 2 * kPanelRows + n % kPanelRows;
  return {params[0], params[kPanelRows]};
}

/// The zero that was rounded with its scale, in codes; at most `max`.
__device__ bool find_zero(ZeroKind kind, int max, const GroupParams& params, int* zero) {
  const float in_codes = kind == ZeroKind::kPoint ? params.zero
                         : params.scale == 0      ? params.zero == 0 ? 0.0f : -1.0f
                                                  : rintf(params.zero / params.scale);
  if (!(in_codes >= 0 && in_codes <= max) || in_codes != rintf(in_codes)) return false;
  *zero = static_cast<int>(in_codes);
  if (kind == ZeroKind::kPoint) return true;
  const float product = params.scale * in_codes;  // exact where the scale has 19 bits
  return params.zero == product || params.zero == __half2float(__float2half_rn(product)) ||
         params.zero == __bfloat162float(__float2bfloat16_rn(product));
}

/// [scale, zero] of 16 bits; returns rejections.
__device__ uint32_t put_entry_16_bits(MixedKind kind, ZeroKind zero_kind, const GroupParams& params,
                                      bool is_upper, uint16_t* entry) {
  const bool has_f16 = is_f16(kind);
  const int max = zero_max(kind);
  int zero = 0;
  if (!find_zero(zero_kind, max, params, &zero)) return kMixedZero;
  const __half f16 = __float2half_rn(params.scale);
  const __nv_bfloat16 bf16 = __float2bfloat16_rn(params.scale);
  const float kept = has_f16 ? __half2float(f16) : __bfloat162float(bf16);
  const float number_max = has_f16 ? 65504.0f : 0x1.FEp127f;
  const float scale_max = kind == MixedKind::kU8Bf16 ? kU8Bf16ScaleMax : number_max / max;
  const float error_max = has_f16 && !is_u8(kind) ? kScaleErrorF16 : kScaleErrorBf16;
  const bool is_kept =
      fabsf(kept - params.scale) <= error_max * fabsf(params.scale) && fabsf(kept) <= scale_max;
  entry[0] = has_f16 ? __half_as_ushort(f16) : __bfloat16_as_ushort(bf16);
  entry[1] = zero_bits(kind, is_upper, zero);
  return is_kept ? 0 : kMixedScale;
}

/// A multiple of the unit, or a number that no byte has.
__device__ int multiple_of(float value, float unit) {
  const float multiple = value / unit;
  return fabsf(multiple) <= kFactorMax ? static_cast<int>(rintf(multiple)) : 2 * kFactorMax;
}

/// Scale and offset: the number is scale * code + offset - 128.
__device__ uint32_t put_entry_group_s8(const GroupParams& params, float unit, uint8_t* entry) {
  const int scale = multiple_of(params.scale, unit);
  const int offset = 128 - multiple_of(params.zero, unit);
  entry[0] = static_cast<uint8_t>(scale);
  entry[1] = static_cast<uint8_t>(offset);
  return scale >= 0 && scale <= kFactorMax && offset >= 0 && offset <= 255 ? 0 : kMixedFactor;
}

/// A block packs chunk blockIdx.x of rows of chunks blockIdx.y, ...
__global__ void __launch_bounds__(kThreads)
    pack_mixed_kernel(const __grid_constant__ PackArguments args) {
  __shared__ uint32_t words[kChunkBytesMax / 4];
  auto* bytes = reinterpret_cast<uint8_t*>(words);
  const MixedPanels& panels = args.panels;
  const MixedKind kind = panels.kind;
  const int thread = static_cast<int>(threadIdx.x);
  const int num_words = chunk_bytes(kind, args.group_size) / 4;
  const int bits = is_u8(kind) ? 8 : 4;
  const int unit_words = static_cast<int>(quad_unit_bytes(panels.quads.layout)) / 4;
  const int64_t num_units = (panels.K + kQuadUnitInputs - 1) / kQuadUnitInputs;
  const int64_t num_rows = (panels.num_outputs + kChunkOutputs - 1) / kChunkOutputs;
  const int64_t k_begin = int64_t{blockIdx.x} * kChunkInputs;
  uint32_t rejections = 0;
  for (int64_t row = blockIdx.y; row < num_rows; row += gridDim.y) {
    for (int i = thread; i < num_words; i += kThreads) words[i] = 0;
    __syncthreads();
    const int num_entries = kind == MixedKind::kU4S8 ? 0 : chunk_groups(args.group_size);
    for (int i = thread; i < num_entries * kChunkOutputs; i += kThreads) {
      const int column = i % kChunkOutputs, group = i / kChunkOutputs;
      const int64_t n = row * kChunkOutputs + column;
      const int64_t k = k_begin + group * args.group_size;
      if (n >= panels.num_outputs || k >= panels.K) continue;
      const GroupParams params =
          group_params(panels.quads, args.num_groups, n, k / panels.quads.group_size);
      const bool is_upper = column % 16 >= 8;
      const int entry_bytes = group_entry_bytes(kind);
      uint8_t* entry = bytes + chunk_code_bytes(kind) + group * group_bytes(kind) +
                       group_entry(column) * entry_bytes + (is_upper ? entry_bytes / 2 : 0);
      rejections |= kind == MixedKind::kU4GroupS8
                        ? put_entry_group_s8(params, panels.units[n], entry)
                        : put_entry_16_bits(kind, panels.quads.zero_kind, params, is_upper,
                                            reinterpret_cast<uint16_t*>(entry));
    }
    __syncthreads();
    for (int i = thread; i < kChunkPanels * kChunkUnits * unit_words; i += kThreads) {
      const int panel = i / (kChunkUnits * unit_words), unit = i / unit_words % kChunkUnits;
      const int line = i % unit_words / static_cast<int>(kPanelRows);
      const int column = panel * static_cast<int>(kPanelRows) + i % static_cast<int>(kPanelRows);
      const int64_t n = row * kChunkOutputs + column;
      const int64_t first_unit = k_begin / kQuadUnitInputs;
      if (n >= panels.num_outputs || first_unit + unit >= num_units) continue;
      const int64_t at =
          (n / kPanelRows * num_units + first_unit + unit) * unit_words + i % unit_words;
      const uint32_t codes = reinterpret_cast<const uint32_t*>(panels.quads.data)[at];
      for (int c = 0; c < 32 / bits; ++c) {
        // A line is a pair of quads, of which a byte has a code each; of 8 bits a quad.
        const int quad = bits == 8 ? line : 2 * line + c % 2;
        const int in_quad = bits == 8 ? c : c / 2;
        const int in_chunk = unit * static_cast<int>(kQuadUnitInputs) + quad * 4 + in_quad;
        if (k_begin + in_chunk >= panels.K) continue;
        const uint32_t code = (codes >> (bits * c)) & static_cast<uint32_t>(code_max(kind));
        const NibblePlace place = nibble_place(kind, column, in_chunk);
        atomicOr(words + place.byte / 4, (code ^ nibble_flip(kind))
                                             << (place.byte % 4 * 8 + place.shift));
        if (kind != MixedKind::kU4GroupS8) continue;
        const uint8_t* entry =
            bytes + chunk_code_bytes(kind) + in_chunk / args.group_size * group_bytes(kind) +
            group_entry(column) * group_entry_bytes(kind) + (column % 16 >= 8 ? 2 : 0);
        if (code * entry[0] + entry[1] > 255u) rejections |= kMixedFactor;
      }
    }
    __syncthreads();
    auto* to = reinterpret_cast<uint32_t*>(args.chunks) +
               (row * gridDim.x + blockIdx.x) * int64_t{num_words};
    for (int i = thread; i < num_words; i += kThreads) to[i] = words[i];
    __syncthreads();
  }
  if (rejections != 0) atomicOr(args.rejections, rejections);
}

/// A thread has an output. Remainders of f32 are exact, and so is Euclid's algorithm.
__global__ void __launch_bounds__(kThreads)
    find_units_kernel(const __grid_constant__ PackArguments args, float* units) {
  const int64_t n = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (n >= args.panels.num_outputs) return;
  float unit = 0, largest = 0, first = 0;  // the first scale that is not zero
  bool is_fine = true;
  for (int64_t group = 0; group < args.num_groups && is_fine; ++group) {
    const GroupParams params = group_params(args.panels.quads, args.num_groups, n, group);
    first = first == 0 ? params.scale : first;
    for (const float value : {params.scale, params.zero}) {
      largest = fmaxf(largest, fabsf(value));
      float rest = fabsf(value);
      // Not while (rest != 0): a NaN would stay.
      while (rest > 0) {
        const float next = fmodf(unit, rest);
        unit = rest;
        rest = next;
      }
    }
    is_fine = unit * kFactorMax >= largest && largest < 0x1p120f;
  }
  units[n] = first < 0 ? -unit : unit;
  if (!is_fine || !(unit > 0)) atomicOr(args.rejections, static_cast<uint32_t>(kMixedFactor));
}

PackArguments arguments_of(const MixedPanels& panels, uint8_t* chunks, uint32_t* rejections) {
  return {.panels = panels,
          .group_size = stored_group_size(panels.K, panels.quads.group_size),
          .num_groups = ceil_div(panels.K, panels.quads.group_size),
          .chunks = chunks,
          .rejections = rejections};
}

}  // namespace

std::string why_rejected(MixedKind kind, uint32_t rejections) {
  std::string text;
  const auto add = [&](MixedRejection bit, const std::string& why) {
    if ((rejections & bit) == 0) return;
    text += text.empty() ? "" : ", ";
    text += why;
  };
  add(kMixedZero, str("zeros of groups are no integers from 0 to ", zero_max(kind)));
  add(kMixedScale, "scales leave the activations' type");
  add(kMixedFactor, "scales of groups are no multiples, of 8 bits, of one for the output");
  return text;
}

void pack_mixed_panels(const CudaContext& context, const MixedPanels& panels, uint8_t* chunks,
                       uint32_t* rejections) {
  HALLEY_CHECK(
      panels.quads.layout == (is_u8(panels.kind) ? PackedLayout::kU8Quad : PackedLayout::kU4Quad),
      panels.quads.layout, panels.kind);
  if (panels.num_outputs == 0 || panels.K == 0) return;
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(panels.K, kChunkInputs)),
                  static_cast<unsigned>(ceil_div<int64_t>(panels.num_outputs, kChunkOutputs)));
  launch_kernel(context, "pack_mixed_panels", {.grid = grid, .block = dim3(kThreads), .pdl = false},
                pack_mixed_kernel, arguments_of(panels, chunks, rejections));
}

void find_units(const CudaContext& context, const MixedPanels& panels, float* units,
                uint32_t* rejections) {
  HALLEY_CHECK(panels.quads.zero_kind == ZeroKind::kOffset, panels.num_outputs);
  if (panels.num_outputs == 0 || panels.K == 0) return;
  const auto blocks = static_cast<unsigned>(ceil_div<int64_t>(panels.num_outputs, kThreads));
  launch_kernel(context, "find_units",
                {.grid = dim3(blocks), .block = dim3(kThreads), .pdl = false}, find_units_kernel,
                arguments_of(panels, nullptr, rejections), units);
}

}  // namespace halley::cuda
