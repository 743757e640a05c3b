#include "halley/models/cuda/cuda_self_check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/element.h"
#include "halley/core/float16.h"
#include "halley/core/nested_float.h"
#include "halley/cuda/gemm/lane_order.h"
#include "halley/cuda/gemv/gemv_weight.h"
#include "halley/cuda/mixed_gemm/mixed_pack.h"
#include "halley/cuda/nested_gemm/nested_layout.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/w4ax_gemm/w4ax_layout.h"
#include "halley/kernels/gemm/activation_quant.h"

namespace halley::cuda {
namespace {

using Section = CudaLinear::Section;

constexpr int64_t kNumRows = 2;
// Tolerance of f32 accumulation; FP8 MMAs accumulate with 14 bits. Both are far below the error of
// a wrong index.
constexpr double kSumError = 1e-3;
constexpr double kFp8SumError = 1e-2;
// Absolute tolerance where the reference is nearly zero.
constexpr double kAbsoluteError = 1e-5;

size_t bytes_of(DType dtype) { return static_cast<size_t>(bits_of(dtype)) / 8; }

/// `count` elements at `from`, as f32.
std::vector<float> fetch(const CudaStream& stream, DType dtype, const std::byte* from,
                         size_t count) {
  std::vector<std::byte> bytes(count * bytes_of(dtype));
  check_cuda(
      cudaMemcpyAsync(bytes.data(), from, bytes.size(), cudaMemcpyDeviceToHost, stream.get()),
      "copy of what a self-check compares");
  stream.synchronize();
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = element_to_f32(dtype, bytes.data() + i * bytes_of(dtype));
  }
  return values;
}

float fetch_one(const CudaStream& stream, const float* from) {
  return from == nullptr
             ? 0.0f
             : fetch(stream, DType::kF32, reinterpret_cast<const std::byte*>(from), 1)[0];
}

int64_t stride_of(DType dtype, int64_t num_cols) {
  return round_up<int64_t>(num_cols, 128 / bits_of(dtype));
}

Matrix take_rows(const CudaContext& context, DType dtype, int64_t num_cols) {
  const int64_t stride = stride_of(dtype, num_cols);
  return {context.workspace.take(static_cast<size_t>(kNumRows * stride) * bytes_of(dtype)), dtype,
          kNumRows, num_cols, stride};
}

/// Multiples of 1/16 up to 1, which all types have.
std::vector<float> make_inputs(int64_t num_inputs) {
  std::mt19937 random(static_cast<uint32_t>(num_inputs));
  std::uniform_int_distribution<int> small(-16, 16);
  std::vector<float> x(static_cast<size_t>(kNumRows * num_inputs));
  for (float& value : x) value = static_cast<float>(small(random)) / 16.0f;
  return x;
}

void upload(const CudaStream& stream, const std::vector<float>& values, Matrix rows) {
  const auto K = static_cast<size_t>(rows.num_cols);
  for (int64_t m = 0; m < rows.num_rows; ++m) {
    std::vector<uint16_t> bits(K);
    for (size_t k = 0; k < K; ++k) {
      const float value = values[static_cast<size_t>(m) * K + k];
      bits[k] = rows.dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    }
    check_cuda(cudaMemcpyAsync(rows.row<uint16_t>(m), bits.data(), K * sizeof(uint16_t),
                               cudaMemcpyHostToDevice, stream.get()),
               "copy of a self-check's inputs");
    stream.synchronize();
  }
}

QuantParams quant_of(const CudaStream& stream, const Section& section) {
  QuantParams quant;
  quant.activation = section.activation.kind;
  quant.activation_scale = section.activation.scale;
  quant.num_s8_inputs = section.activation.num_s8_inputs;
  quant.s4_clip = section.activation.s4_clip;
  if (section.activation.input_perm != nullptr) {
    quant.input_perm.resize(static_cast<size_t>(section.K));
    check_cuda(cudaMemcpyAsync(quant.input_perm.data(), section.activation.input_perm,
                               quant.input_perm.size() * sizeof(int32_t), cudaMemcpyDeviceToHost,
                               stream.get()),
               "copy of an order of inputs");
    stream.synchronize();
  }
  return quant;
}

/// The dequantized weights of one output: w - offset.
struct OutputWeights {
  std::vector<float> w;
  double offset = 0, bias = 0;
};

/// The row of packed tiles that holds output n.
std::vector<uint8_t> fetch_chunks(const CudaStream& stream, const DeviceBuffer& chunks,
                                  size_t row_bytes, int64_t n) {
  std::vector<uint8_t> row(row_bytes);
  check_cuda(cudaMemcpyAsync(row.data(),
                             chunks.data() + static_cast<size_t>(n / kChunkOutputs) * row_bytes,
                             row_bytes, cudaMemcpyDeviceToHost, stream.get()),
             "copy of what a self-check compares");
  stream.synchronize();
  return row;
}

/// One output's dequantized weights in packed order.
std::vector<float> fetch_numbers(const CudaStream& stream, const MixedShape& shape,
                                 const DeviceBuffer& chunks, int64_t n) {
  const int64_t begin = n / kChunkOutputs * kChunkOutputs;
  const size_t row_bytes =
      static_cast<size_t>(mixed_bytes(shape.kind, kChunkOutputs, shape.K, shape.group_size));
  const MixedPacked packed = {.kind = shape.kind,
                              .N = std::min<int64_t>(shape.N - begin, kChunkOutputs),
                              .K = shape.K,
                              .group_size = shape.group_size,
                              .chunks = fetch_chunks(stream, chunks, row_bytes, n)};
  return unpack_mixed_row(packed, n % kChunkOutputs);
}

std::vector<float> in_order(const std::vector<float>& packed,
                            const std::vector<int32_t>& input_perm) {
  std::vector<float> numbers(packed.size());
  for (size_t k = 0; k < packed.size(); ++k) {
    numbers[input_perm.empty() ? k : static_cast<size_t>(input_perm[k])] = packed[k];
  }
  return numbers;
}

OutputWeights fetch_w4ax(const CudaStream& stream, const Section& section,
                         const std::vector<int32_t>& input_perm, int64_t n) {
  const W4axWeight& weight = section.w4ax;
  const auto row_bytes = static_cast<size_t>(weight.num_blocks() * kW4axChunkBytes);
  const std::vector<uint8_t> packed_bytes = fetch_chunks(stream, weight.codes, row_bytes, n);
  const auto* scales = reinterpret_cast<const float*>(weight.scales.data());
  const int in_chunk = static_cast<int>(n % kTileOutputs);
  std::vector<float> packed(static_cast<size_t>(weight.K));
  for (int64_t block = 0; block < weight.num_blocks(); ++block) {
    const float scale = fetch_one(stream, scales + block * weight.scales_pitch() + n);
    for (int byte = 0; byte < kW4axChunkBytes; ++byte) {
      const W4axBytePlace place = w4ax_byte_place(byte);
      const int64_t k = block * kW4axInputs + place.input;
      if (place.output != (in_chunk & ~8) || k >= weight.K) continue;
      const uint32_t two = packed_bytes[static_cast<size_t>(block * kW4axChunkBytes + byte)];
      const uint32_t nibble = in_chunk % 16 < 8 ? two & 15u : two >> 4;
      packed[static_cast<size_t>(k)] =
          scale * static_cast<float>(static_cast<int>(nibble ^ 8u) - 8);
    }
  }
  OutputWeights output;
  output.w = in_order(packed, input_perm);
  return output;
}

OutputWeights fetch_nested(const CudaStream& stream, const Section& section, int64_t n) {
  const int64_t K = section.K, num_chunks = ceil_div<int64_t>(K, kNestedInputs);
  const auto lower = fetch_chunks(stream, section.nested.lower,
                                  static_cast<size_t>(num_chunks) * kNestedChunkBytes, n);
  // Reads the upper bytes through i8, which represents each of them.
  const std::vector<float> upper =
      fetch(stream, DType::kI8, section.w.data + static_cast<size_t>(n * section.w.row_stride),
            static_cast<size_t>(K));
  OutputWeights output;
  for (int64_t k = 0; k < K; ++k) {
    const int64_t chunk = k / kNestedInputs;
    const int in_chunk = static_cast<int>(k % kNestedInputs);
    const float number = upper[static_cast<size_t>(chunk * kNestedInputs + lane_place(in_chunk))];
    const auto code = static_cast<uint8_t>(static_cast<int8_t>(number));
    const int64_t place =
        chunk * kNestedChunkBytes + lower_offset(static_cast<int>(n % kTileOutputs), in_chunk);
    output.w.push_back(f16_to_f32(join_f16({code, lower[static_cast<size_t>(place)]})));
  }
  return output;
}

OutputWeights fetch_mixed(const CudaStream& stream, const Section& section,
                          const std::vector<int32_t>& input_perm, int64_t n) {
  const MixedWeight& weight = section.mixed;
  OutputWeights output;
  output.w = in_order(fetch_numbers(stream, mixed_shape(weight, 0), weight.chunks, n), input_perm);
  if (!is_s8(weight.kind)) return output;
  const auto* scales = reinterpret_cast<const float*>(weight.scales.data());
  const float scale = fetch_one(stream, scales + n);
  for (float& w : output.w) w *= scale;
  if (weight.has_offsets) output.offset = fetch_one(stream, scales + weight.N + n);
  return output;
}

OutputWeights fetch_gemv(const CudaStream& stream, const Section& section,
                         const std::vector<int32_t>& input_perm, int64_t n) {
  OutputWeights output;
  output.w = in_order(fetch_gemv_numbers(stream, section.gemv, n), input_perm);
  return output;
}

OutputWeights fetch_rows(const CudaStream& stream, const Section& section, int64_t n) {
  OutputWeights output;
  output.w = fetch(
      stream, section.w.dtype,
      section.w.data + static_cast<size_t>(n * section.w.row_stride) * bytes_of(section.w.dtype),
      static_cast<size_t>(section.K));
  if (section.scales.w_scales != nullptr) {
    const float scale =
        fetch_one(stream, section.scales.w_scales + (section.scales.is_w_tensor ? int64_t{0} : n));
    for (float& w : output.w) w *= scale;
  }
  const float* offsets = section.scales.w_offsets;
  output.offset = fetch_one(stream, offsets == nullptr ? nullptr : offsets + n);
  return output;
}

OutputWeights fetch_weights(const CudaStream& stream, const Section& section,
                            const std::vector<int32_t>& input_perm, int64_t n) {
  OutputWeights output = section.is_mixed()    ? fetch_mixed(stream, section, input_perm, n)
                         : section.is_gemv()   ? fetch_gemv(stream, section, input_perm, n)
                         : section.is_w4ax()   ? fetch_w4ax(stream, section, input_perm, n)
                         : section.is_nested() ? fetch_nested(stream, section, n)
                                               : fetch_rows(stream, section, n);
  output.bias = fetch_one(stream, section.bias == nullptr ? nullptr : section.bias + n);
  return output;
}

double half_step(DType dtype) {
  if (dtype == DType::kF16) return 0x1p-11;
  return dtype == DType::kBf16 ? 0x1p-8 : 0x1p-24;
}

}  // namespace

size_t self_check_bytes(const CudaLinear& linear) {
  const auto rows_bytes = [](int64_t num_cols) {  // of f32, the widest type
    return round_up(
        static_cast<size_t>(kNumRows * stride_of(DType::kF32, num_cols)) * sizeof(float),
        DeviceArena::kAlignment);
  };
  return rows_bytes(linear.in_features()) + rows_bytes(linear.out_features()) +
         linear.workspace_bytes(kNumRows);
}

void self_check(const CudaContext& context, const CudaLinear& linear, DType y_dtype) {
  const int64_t K = linear.in_features();
  if (K == 0 || linear.out_features() == 0) return;
  const size_t mark = context.workspace.mark();
  const std::vector<float> x = make_inputs(K);
  const Matrix x_rows = take_rows(context, linear.dtype(), K);
  const Matrix y_rows = take_rows(context, y_dtype, linear.out_features());
  upload(context.stream, x, x_rows);
  linear.run(context, x_rows, y_rows);
  int64_t begin = 0;
  for (const Section& section : linear.sections()) {
    const QuantParams quant = quant_of(context.stream, section);
    for (const int64_t n : std::set<int64_t>{0, section.N / 2, section.N - 1}) {
      if (section.N == 0) break;
      const OutputWeights output = fetch_weights(context.stream, section, quant.input_perm, n);
      for (int64_t m = 0; m < kNumRows; ++m) {
        std::vector<float> rounded(static_cast<size_t>(K));
        round_activations(quant,
                          std::span(x).subspan(static_cast<size_t>(m * K), static_cast<size_t>(K)),
                          rounded.data());
        double expected = output.bias, magnitude = std::fabs(output.bias);
        for (size_t k = 0; k < rounded.size(); ++k) {
          expected += double{rounded[k]} * (double{output.w[k]} - output.offset);
          magnitude += std::fabs(double{rounded[k]}) *
                       (std::fabs(double{output.w[k]}) + std::fabs(output.offset));
        }
        const std::byte* place =
            y_rows.data +
            static_cast<size_t>(m * y_rows.row_stride + begin + n) * bytes_of(y_dtype);
        const double got = fetch(context.stream, y_dtype, place, 1)[0];
        const bool is_fp8 = section.w.dtype == DType::kF8E4M3 && !section.is_nested();
        const double sum_error = is_fp8 ? kFp8SumError : kSumError;
        const double error_max = (sum_error + half_step(linear.dtype())) * magnitude +
                                 half_step(y_dtype) * std::fabs(expected) + kAbsoluteError;
        if (std::fabs(got - expected) <= error_max) continue;
        throw DeviceError(str("self-check on the GPU: row ", m, ", output ", begin + n,
                              ": expected ", expected, " within ", error_max, ", got ", got, " of ",
                              linear.describe(),
                              ". Use --device cpu, and report it: the kernel is wrong."));
      }
    }
    begin += section.N;
  }
  context.workspace.release(mark);
}

}  // namespace halley::cuda
