// The same model with its residual stream rotated (as QuaRot), so that no channel is an outlier.
#pragma once

#include <memory>
#include <string>

#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/core/exec_context.h"
#include "halley/models/base/decoder_config.h"

namespace halley {

/// Empty where the residual stream can be rotated exactly: RMSNorm before every block and no norm
/// after it, a hidden size that has a Hadamard matrix here. Otherwise the reason.
std::string why_not_rotate(const DecoderConfig& config);

/// A source that reads as `source` would with: norm gains folded into the weights that follow
/// (gains become what means 1), then the residual stream multiplied by an orthogonal matrix made of
/// Hadamard matrices, on the output side of embedding, o_proj and down_proj, and on the input side
/// of everything that reads the stream. Tied embeddings are untied: the source has an output matrix
/// of its own, and `config` becomes that of the rotated model (lm_head set). Tensors are computed
/// in f32 when view() asks for them and kept until release(); view() runs on the context's threads,
/// which must be idle then. `source` and `context` must outlive it. Requires
/// that why_not_rotate() is empty. Throws as find_dense_tensor(), UnsupportedError where a stored
/// tensor holds several experts.
std::unique_ptr<TensorSource> make_rotated_source(ExecContext& context, DecoderConfig& config,
                                                  const TensorSource& source);

}  // namespace halley
