// The interface that a quantization format's room fills. `none` is a format too.
#pragma once

#include <memory>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/core/exec_context.h"
#include "halley/quant/base/linear_op.h"

namespace halley {

/// A format with its parameters fixed for one checkpoint. Immutable; any thread.
class QuantScheme {
 public:
  virtual ~QuantScheme() = default;
  virtual const char* format_name() const = 0;
  /// Checks the layer's tensors on the headers and says what will run. Throws CheckpointError where
  /// a tensor is missing or has another type or shape than the format says, UnsupportedError where
  /// no kernel fits.
  virtual LinearPlan plan(const TensorSource& source, const LinearSpec& spec) const = 0;
  /// Packs the layer's data, once, at load. Throws as plan().
  virtual LinearOp load(ExecContext& context, const TensorSource& source,
                        const LinearSpec& spec) const = 0;
  /// The checkpoint's tensors that plan() or load() of this layer reads, for the check that no
  /// tensor of the checkpoint is left unused.
  virtual std::vector<std::string> tensor_names(const LinearSpec& spec) const = 0;
};

/// One quantization format. A room defines exactly one constant of this type; quant/all lists them.
struct QuantFormat {
  const char* name;
  /// Null when the checkpoint is not of this format. Throws InputError or UnsupportedError when it
  /// is and cannot be used.
  std::unique_ptr<QuantScheme> (*detect)(const HfConfig& config, const TensorSource& source);
};

}  // namespace halley
