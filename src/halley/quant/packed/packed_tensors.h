// Weights of linear layers in tensors of a caller (PyTorch's): rounding to nearest, packing, and
// views that kernels multiply without a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/core/packed_weight.h"
#include "halley/core/tensor.h"
#include "halley/kernels/gemm/gemm.h"

namespace halley {

/// How a weight W [N, K] is packed. The functions below check it and throw InputError that names
/// the wrong member.
struct PackedFormat {
  /// "int4", "int8", "int4_a8", "int8_a8", "int4_ax", "float8" or "nestedfp".
  std::string scheme;
  int64_t N = 0, K = 0;
  int64_t group_size = 0;  // inputs that share a scale: 1 to K; 0 for nestedfp
  int64_t num_inputs = 0;  // columns of x: K, or more where input_perm picks K of them
  bool has_input_perm = false;
  int64_t num_s8_inputs = 0;  // of int4_ax, with s4_clip, as in QuantParams
  float s4_clip = 1;
};

/// Dense memory of a tensor of the host.
struct TensorMemory {
  uintptr_t address = 0;
  size_t num_bytes = 0;
};

/// The tensors of a packed weight. A null address stands for a tensor that the format does not
/// have.
struct PackedTensors {
  TensorMemory qweight;     // u8 of qweight_shape(), at a multiple of 64 bytes
  TensorMemory groups;      // f32 of groups_shape(), at a multiple of 64 bytes
  TensorMemory input_perm;  // i32 [K]
};

PackedLayout layout_of(const PackedFormat& format);
/// The properties by which a kernel of the CPU is chosen, in full precision.
GemmProblem problem_of(const PackedFormat& format);
/// [ceil(N/32), ceil(K/32), bytes of a unit] (core/packed_weight.h); of nestedfp
/// [ceil(N/32), 2, ceil(K/32), 1024].
Shape qweight_shape(const PackedFormat& format);
/// [ceil(N/32), ceil(K/group_size), 2, 32]: scales, then zeros; of nestedfp empty.
Shape groups_shape(const PackedFormat& format);

struct RoundingOptions {
  bool is_symmetric = false;   // of int4 and int8
  bool is_per_tensor = false;  // of float8
};

/// Rounds w, f32 [N, K] in packed order, to nearest as `halley quantize` does, and writes qweight
/// and groups. Returns why the weight cannot be stored so (nestedfp: a value beyond 1.75), and
/// writes nothing then; otherwise nothing. Throws InputError or CheckpointError with `name` for
/// values that are not finite.
std::string round_linear(ExecContext& context, const std::string& name, const PackedFormat& format,
                         const RoundingOptions& options, TensorMemory w, const PackedTensors& out);

/// A quantized weight in rows. w = scale * (qweight - zero); int4_a8: w = scale * qweight - zero.
struct PlainTensors {
  /// u8 [N, K], a quantized value a byte; signed ones plus 128; float8: e4m3; nestedfp: [2, N, K],
  /// the upper bytes and the lower ones.
  TensorMemory qweight;
  TensorMemory scales, zeros;  // f32 [N, ceil(K / group_size)]
};

/// Packs quantized values. Throws InputError for values out of the format's range and scales that
/// are not finite.
void pack_linear(ExecContext& context, const PackedFormat& format, const PlainTensors& plain,
                 const PackedTensors& out);
/// The reverse.
void unpack_linear(const PackedFormat& format, const PackedTensors& packed,
                   const PlainTensors& out);

/// Writes the weight that is multiplied, f32 [N, num_inputs] in the order of x. Columns that
/// input_perm does not pick are zero.
void dequantize_linear(const PackedFormat& format, const PackedTensors& packed, Precision precision,
                       TensorMemory out);

/// A view of the tensors, which must outlive it. Throws InputError where their sizes or addresses
/// do not fit the format, or an input of input_perm is out of range.
PackedWeight view_linear(const PackedFormat& format, const PackedTensors& packed);

/// Checked: the memory as `count` elements of T. Throws InputError that names `what`.
template <typename T>
T* elements_of(const TensorMemory& memory, int64_t count, const char* what);

/// The plan of int4_ax: which inputs come first, and how many of them have 8 bits.
struct BlockInputs {
  std::vector<int32_t> input_perm;  // [K]
  int64_t num_s8_inputs = 0;
};
/// From the largest magnitudes and the root mean squares of the inputs, f32 [K], and w, f32 [N, K]
/// in the order of x. `s8_share`: of the blocks of 128 inputs, from 0 to 1.
BlockInputs plan_block_inputs(int64_t N, int64_t K, double s8_share, TensorMemory abs_max,
                              TensorMemory rms, TensorMemory w);

}  // namespace halley
