// The interface that the module of a quantization format implements. `none` is a format too.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/kernels/gemm/gemm.h"
#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/quant_config.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {

/// The KV cache type that a checkpoint declares.
enum class DeclaredKv : uint8_t {
  kNothing,
  kFp8Static,  // e4m3 with scales of the checkpoint, one for keys and one for values of a layer
  kInt8,       // 8 bits, a scale per token and head: made at run time, nothing is stored
  kInt4,       // 4 bits, the same
};

/// A format with its parameters fixed for one checkpoint. Immutable; any thread.
class QuantScheme {
 public:
  virtual ~QuantScheme() = default;
  virtual const char* format_name() const = 0;
  /// For the summary line at load: "4 bits, group 128, symmetric".
  virtual std::string summary() const { return {}; }
  /// The part's weight. The tensors present decide whether it is quantized; the configuration
  /// (ignore lists, overrides) must agree. Reads headers, and of the data only scalars and tensors
  /// that decide how others are read (g_idx, qzeros). Throws CheckpointError that names the layer,
  /// the tensor or field, what was expected and what was found; UnsupportedError where it is
  /// well-formed and cannot be loaded here.
  virtual std::unique_ptr<StoredWeight> open(const TensorSource& source,
                                             const LinearSpec::Part& part,
                                             int64_t in_features) const = 0;
  /// The tensors, with types and shapes, that a checkpoint of this scheme has for a part: used to
  /// make dummy weights. Optional tensors are left out; the bias is not among them.
  virtual std::vector<TensorInfo> expected_tensors(const LinearSpec::Part& part,
                                                   int64_t in_features) const = 0;
  virtual DeclaredKv declared_kv() const { return DeclaredKv::kNothing; }
  /// Warnings about the configuration, for the user.
  virtual std::vector<std::string> warnings() const { return {}; }
};

/// One way in which a format stores weights: a row of the table of `halley formats`.
struct FormatOption {
  const char* stored;   // "4 bits, act-order"
  GemmProblem problem;  // asked of the tables of kernels, at kOptionSize
};

/// Outputs and inputs of the problems in FormatOption.
inline constexpr int64_t kOptionSize = 4096;

/// The problem of a weight of kOptionSize outputs and inputs; group_size kOptionSize: per-channel
/// scales, 0: full precision.
constexpr GemmProblem option_problem(PackedLayout layout, int64_t group_size = 0,
                                     ActivationQuant activation = ActivationQuant::kNone,
                                     ZeroKind zero_kind = ZeroKind::kPoint) {
  return {.w_layout = layout,
          .N = kOptionSize,
          .K = kOptionSize,
          .group_size = group_size,
          .zero_kind = zero_kind,
          .activation = activation};
}

/// One quantization format. Its module defines exactly one constant of this type; quant/all lists
/// them.
struct QuantFormat {
  const char* name;
  /// Null when the checkpoint is not of this format. Throws InputError or UnsupportedError when it
  /// is and cannot be used.
  std::unique_ptr<QuantScheme> (*detect)(const QuantConfig& config, const TensorSource& source);
  /// In the order of the table of `halley formats`; empty for a format that no file is stored in,
  /// or that is only rejected.
  std::span<const FormatOption> options = {};
};

}  // namespace halley
