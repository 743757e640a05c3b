// The architectures of GGUF files that are read: the model_type that each is here, what its tensors
// are called in Hugging Face checkpoints, and what llama.cpp's converter did to their values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halley/checkpoint/gguf/gguf_file.h"

namespace halley {

/// "ffn_norm" of "blk.0.ffn_norm.weight", and what it is behind "model.layers.0.".
struct GgufTensorName {
  const char* gguf;
  const char* checkpoint;
};

struct GgufArchitecture {
  const char* name;        // of general.architecture
  const char* model_type;  // of config.json
  /// Names that differ from those that most architectures share.
  std::span<const GgufTensorName> names;
  /// Rows of q and k (and of their biases) lie in pairs: row 2j + s of a head is row s * D/2 + j in
  /// the order of Hugging Face, where halves rotate.
  bool has_paired_rows = false;
  /// Norm weights have 1 added.
  bool has_norm_offset = false;
};

/// The architecture of the file. Throws UnsupportedError that names those that are read.
const GgufArchitecture& find_gguf_architecture(const GgufMetadata& metadata);

/// The change that turns stored values into those of a Hugging Face checkpoint.
enum class GgufRewrite : uint8_t { kNone, kUnpairRows, kSubtractOne };

/// A tensor, or the matrix of one expert in it, under its name in a Hugging Face checkpoint.
struct GgufNamedTensor {
  std::string name;  // "model.layers.0.mlp.experts.3.up_proj.weight"; quantized: ".q4_k" behind it
  const GgufTensor* tensor = nullptr;
  int64_t expert = -1;
  GgufRewrite rewrite = GgufRewrite::kNone;
  int64_t num_heads = 0;  // of kUnpairRows
};

/// All tensors but those that the configuration is made of (rope_freqs). A tensor that the
/// architecture does not know keeps its name. Throws CheckpointError where a tensor's shape
/// contradicts the metadata.
std::vector<GgufNamedTensor> name_gguf_tensors(const GgufHeader& header);

/// "llama.<key>" for the file's architecture.
std::string gguf_key(const GgufMetadata& metadata, std::string_view key);

}  // namespace halley
