// The weights of a decoder, packed for the kernels, and how they are loaded and checked.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/core/exec_context.h"
#include "halley/core/packed_weight.h"
#include "halley/models/base/causal_lm.h"
#include "halley/models/base/decoder_config.h"
#include "halley/models/base/decoder_parts.h"
#include "halley/quant/base/linear_loader.h"

namespace halley {

/// Empty vectors where the norm, or its bias, does not exist. Values are the checkpoint's, in f32.
struct NormWeights {
  std::vector<float> weight, bias;
};

struct MlpWeights {
  std::optional<LinearOp> router;
  std::vector<LinearOp> gate_up, down;  // as in MlpSpec
};

struct LayerWeights {
  NormWeights input_norm, q_norm, k_norm, attention_out_norm, mlp_norm, mlp_out_norm;
  LinearOp qkv, o;
  MlpWeights mlp;
};

struct DecoderWeights {
  std::optional<PackedWeight> embedding;  // [V, K]; absent: tied, `output` holds the one copy
  std::optional<PackedWeight> positions;  // [num_stored_positions + position_offset, K]
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  LinearOp output;  // [V, K]

  const PackedWeight& embedding_table() const { return embedding ? *embedding : output.weight(); }
};

/// The rows of a table, and those of them that this rank has.
struct TableRows {
  int64_t num_rows = 0;
  InputRange own;
};

/// The rows of a table as the outputs of a linear layer where it is not in full precision, so that
/// the format opens it; nothing where the tensor `table_name` is there.
std::optional<LinearSpec> quantized_table(const DecoderConfig& config, const TensorSource& source,
                                          const std::string& table_name, const TableRows& rows);

/// The plans of a part, one for each packed weight. `kernel` is null (and the format "none") for an
/// embedding and a norm, except for a tied embedding, whose kernel is that of the output layer.
/// From headers alone. Throws CheckpointError where a tensor is missing or has another type or
/// shape.
std::vector<LinearPlan> plan_part(const DecoderConfig& config, const DecoderPart& part,
                                  const LinearLoading& loading);

/// Throws CheckpointError that names tensors of the source which the model does not use. A second
/// copy of a tied embedding passes here; load_decoder_weights() compares it.
void check_all_tensors_used(const DecoderConfig& config, const LinearLoading& loading);

/// A note on the tensors of parts other than text, which are not loaded; empty: there are none.
std::string note_of_left_out(const DecoderConfig& config, const TensorSource& source);

/// Called with the packed bytes of each part when it is loaded; may be empty.
using PartLoaded = std::function<void(size_t packed_bytes)>;

/// Packs every weight, one after the other: the peak is the packed size plus one part's data.
/// Throws as plan_part().
DecoderWeights load_decoder_weights(ExecContext& context, const DecoderConfig& config,
                                    const LinearLoading& loading, const PartLoaded& on_part);

/// A norm's values; empty where the bias does not exist.
NormWeights load_norm_weights(const TensorSource& source, const NormSpec& spec, int64_t size);

/// Throws CheckpointError where the embeddings are tied and the checkpoint has another output
/// matrix: tie_word_embeddings or the tensor is wrong, and nobody can tell which. (transformers
/// ignores the tensor.)
void check_tied_output(const DecoderConfig& config, const TensorSource& source);

/// One layer alone, as load_decoder_weights() loads it.
LayerWeights load_layer_weights(ExecContext& context, const DecoderConfig& config,
                                const LinearLoading& loading, int64_t layer_index);

/// The weights of one layer's attention_block(), with the norms around it; the rest stays empty.
LayerWeights load_attention_weights(ExecContext& context, const DecoderConfig& config,
                                    const LinearLoading& loading, int64_t layer_index);

/// The weights that a decode step in this precision reads: all but an untied embedding table, norms
/// and positions.
WeightMemory memory_of(const DecoderWeights& weights, const DecoderConfig& config,
                       Precision precision);

}  // namespace halley
