#include "halley/cuda/gemv/gemv_weight.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley::cuda {
namespace {

constexpr float kZeroMax = 256;

/// The type of 16 bits that scales of groups lose least in.
DType scale_dtype_of(std::span<const float> scales) {
  constexpr float kF16Min = 0x1p-14f, kF16Max = 65504;
  bool is_f16 = true, is_bf16 = true, is_normal = true;
  for (const float scale : scales) {
    is_f16 = is_f16 && f16_to_f32(f32_to_f16(scale)) == scale;
    is_bf16 = is_bf16 && bf16_to_f32(f32_to_bf16(scale)) == scale;
    const float size = std::fabs(scale);
    is_normal = is_normal && (size == 0 || (size >= kF16Min && size <= kF16Max));
  }
  if (is_f16) return DType::kF16;
  return is_bf16 || !is_normal ? DType::kBf16 : DType::kF16;
}

uint16_t round_to(DType dtype, float value) {
  return dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
}

/// [N, groups] to [tiles][entries][8][groups of entry][2].
std::vector<uint16_t> in_entries(const GemvShape& shape, DType dtype,
                                 std::span<const float> values) {
  std::vector<uint16_t> packed(shape.group_bytes() / sizeof(uint16_t), 0);
  const int64_t num_groups = shape.num_groups();
  const int of_entry = shape.groups_of_entry();
  for (int64_t n = 0; n < shape.N; ++n) {
    const int64_t tile = n / kGemvTileOutputs, row = n % kGemvTileOutputs;
    for (int64_t group = 0; group < num_groups; ++group) {
      const int64_t entry = tile * shape.num_entries() + group / of_entry;
      const int64_t at = ((entry * 8 + row % 8) * of_entry + group % of_entry) * 2 + row / 8;
      packed[static_cast<size_t>(at)] =
          round_to(dtype, values[static_cast<size_t>(n * num_groups + group)]);
    }
  }
  return packed;
}

DeviceBuffer to_device(const CudaContext& context, const void* from, size_t num_bytes,
                       const char* what) {
  DeviceBuffer memory(std::max<size_t>(num_bytes, 1), what);
  check_cuda(
      cudaMemcpyAsync(memory.data(), from, num_bytes, cudaMemcpyHostToDevice, context.stream.get()),
      "copy of scales");
  context.stream.synchronize();
  return memory;
}

template <typename T>
std::vector<T> fetch(const CudaStream& stream, const DeviceBuffer& from, size_t begin_bytes,
                     size_t num_bytes) {
  std::vector<T> values(num_bytes / sizeof(T));
  check_cuda(cudaMemcpyAsync(values.data(), from.data() + begin_bytes, num_bytes,
                             cudaMemcpyDeviceToHost, stream.get()),
             "copy of a weight");
  stream.synchronize();
  return values;
}

/// The 16-bit values of all groups of output n.
std::vector<float> fetch_groups(const CudaStream& stream, const GemvShape& shape,
                                const DeviceBuffer& from, DType dtype, int64_t n) {
  const size_t tile_bytes = shape.group_bytes() / static_cast<size_t>(shape.num_tiles());
  const auto bits = fetch<uint16_t>(
      stream, from, static_cast<size_t>(n / kGemvTileOutputs) * tile_bytes, tile_bytes);
  const int64_t row = n % kGemvTileOutputs, of_entry = shape.groups_of_entry();
  std::vector<float> values;
  for (int64_t group = 0; group < shape.num_groups(); ++group) {
    const int64_t at =
        ((group / of_entry * 8 + row % 8) * of_entry + group % of_entry) * 2 + row / 8;
    const uint16_t value = bits[static_cast<size_t>(at)];
    values.push_back(dtype == DType::kF16 ? f16_to_f32(value) : bf16_to_f32(value));
  }
  return values;
}

}  // namespace

int64_t GemvShape::num_groups() const { return is_grouped() ? ceil_div(K, group_size) : 1; }

int GemvShape::groups_of_entry() const {
  const bool is_part = is_grouped() && group_size < kGemvPieceInputs;
  return is_part ? kGemvPieceInputs / static_cast<int>(group_size) : 1;
}

int64_t GemvShape::num_entries() const {
  return ceil_div<int64_t>(num_groups(), groups_of_entry());
}

size_t GemvShape::code_bytes() const {
  return static_cast<size_t>(num_tiles() * num_pieces() * gemv_piece_bytes(bits));
}

size_t GemvShape::group_bytes() const {
  return static_cast<size_t>(num_tiles() * num_entries() * kGemvTileOutputs * groups_of_entry()) *
         sizeof(uint16_t);
}

size_t GemvShape::scale_bytes() const {
  return is_grouped() ? group_bytes() : static_cast<size_t>(N) * sizeof(float);
}

std::string why_not_gemv(const GemvShape& shape) {
  const bool is_s8 = shape.inputs == GemvInputs::kS8;
  const int64_t step = is_s8 ? 16 : 8;
  const bool has_bits =
      shape.bits == 1 || shape.bits == 2 || (!is_s8 && (shape.bits == 3 || shape.bits == 8));
  if (!has_bits) return str("no kernel for codes of ", shape.bits, " bits and these activations");
  if (shape.K % step != 0) return str(shape.K, " inputs are no multiple of ", step);
  // A block finds its tiles by 32-bit offsets from the first.
  constexpr int64_t kInputsMax = int64_t{1} << 21;
  if (shape.K > kInputsMax) return str("more than ", kInputsMax, " inputs");
  const int64_t least = is_s8 ? 2 * kGemvGroupMin : kGemvGroupMin;
  const bool is_power = shape.group_size > 0 && (shape.group_size & (shape.group_size - 1)) == 0;
  if (shape.is_grouped() && (!is_power || shape.group_size < least)) {
    return str("groups of ", shape.group_size, " inputs, no power of two from ", least, " on");
  }
  return {};
}

bool has_gemv_zeros(std::span<const float> zeros) {
  return std::all_of(zeros.begin(), zeros.end(), [](float zero) {
    return zero >= 0 && zero <= kZeroMax && 2 * zero == std::rint(2 * zero);
  });
}

GemvWeight::GemvWeight(const CudaContext& context, const GemvShape& weight_shape,
                       const GemvParams& params)
    : shape(weight_shape) {
  const std::string why_not = why_not_gemv(shape);
  HALLEY_CHECK(why_not.empty(), why_not);
  const auto count = static_cast<size_t>(shape.N * shape.num_groups());
  HALLEY_CHECK(
      params.scales.size() == count && params.zeros.size() == count && has_gemv_zeros(params.zeros),
      params.scales.size(), params.zeros.size(), count);
  codes = DeviceBuffer(std::max<size_t>(shape.code_bytes(), 1), "codes");
  const bool has_one_zero = std::all_of(params.zeros.begin(), params.zeros.end(),
                                        [&](float each) { return each == params.zeros[0]; });
  if (has_one_zero) {
    zero = params.zeros.empty() ? 0 : params.zeros[0];
  } else {
    const std::vector<uint16_t> packed = in_entries(shape, DType::kF16, params.zeros);
    zeros = to_device(context, packed.data(), shape.group_bytes(), "zeros");
  }
  if (!shape.is_grouped()) {
    scales = to_device(context, params.scales.data(), shape.scale_bytes(), "scales");
    return;
  }
  scale_dtype = scale_dtype_of(params.scales);
  const std::vector<uint16_t> packed = in_entries(shape, scale_dtype, params.scales);
  scales = to_device(context, packed.data(), shape.scale_bytes(), "scales");
}

std::vector<float> fetch_gemv_numbers(const CudaStream& stream, const GemvWeight& weight,
                                      int64_t n) {
  const GemvShape& shape = weight.shape;
  const size_t tile_bytes = shape.code_bytes() / static_cast<size_t>(shape.num_tiles());
  const auto words = fetch<uint32_t>(
      stream, weight.codes, static_cast<size_t>(n / kGemvTileOutputs) * tile_bytes, tile_bytes);
  std::vector<uint32_t> codes(static_cast<size_t>(shape.num_pieces() * kGemvPieceInputs), 0);
  const int lane_begin = static_cast<int>(n % 8) * 4;  // gemv_layout.h
  for (int64_t piece = 0; piece < shape.num_pieces(); ++piece) {
    for (int lane = lane_begin; lane < lane_begin + 4; ++lane) {
      for (int word = 0; word < gemv_lane_words(shape.bits); ++word) {
        const int64_t place =
            piece * gemv_piece_bytes(shape.bits) + gemv_word_offset(shape.bits, word, lane);
        const uint32_t bits = words[static_cast<size_t>(place / 4)];
        for (int i = 0; i < 32 / gemv_slot_bits(shape.bits, word); ++i) {
          const GemvSlot slot = gemv_slot(shape.inputs, shape.bits, lane, word, i);
          if (slot.output != n % kGemvTileOutputs) continue;
          codes[static_cast<size_t>(piece * kGemvPieceInputs + slot.input)] |=
              (bits >> slot.shift & ((1u << slot.count) - 1)) << slot.low;
        }
      }
    }
  }
  const std::vector<float> scales =
      shape.is_grouped() ? fetch_groups(stream, shape, weight.scales, weight.scale_dtype, n)
                         : fetch<float>(stream, weight.scales, static_cast<size_t>(n) * 4, 4);
  const std::vector<float> zeros = weight.zeros.num_bytes() > 0
                                       ? fetch_groups(stream, shape, weight.zeros, DType::kF16, n)
                                       : std::vector<float>(scales.size(), weight.zero);
  std::vector<float> numbers;
  for (int64_t k = 0; k < shape.K; ++k) {
    const auto group = static_cast<size_t>(shape.is_grouped() ? k / shape.group_size : 0);
    numbers.push_back(scales[group] *
                      (static_cast<float>(codes[static_cast<size_t>(k)]) - zeros[group]));
  }
  return numbers;
}

}  // namespace halley::cuda
