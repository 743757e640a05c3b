// A checkpoint's weights: one safetensors file or shards with an index, memory-mapped, every rule
// of the format enforced (github.com/huggingface/safetensors, README section "Format").
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_source.h"

namespace halley {

/// The tensors of one safetensors file; offsets are relative to the start of `data`.
struct SafetensorsHeader {
  struct Entry {
    TensorInfo info;
    size_t offset = 0;  // bytes from the start of the data section
  };
  std::vector<Entry> entries;  // sorted by name
  std::map<std::string, std::string> metadata;
  size_t data_start = 0;  // bytes from the start of the file
};

/// Checks `file_bytes` (a whole file) against every rule. `where` is the file's name for messages.
/// Throws CheckpointError naming the file, the tensor and field, what was expected and found.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file_bytes,
                                    const std::string& where);

/// Opens the weights in a model's directory: `model.safetensors`, or the shards that
/// `model.safetensors.index.json` names (plain file names inside the directory; every tensor of the
/// weight_map in the shard named for it, and no shard with a tensor that the map lacks).
/// Throws CheckpointError, or UnsupportedError where there are only other kinds of weight files.
std::unique_ptr<TensorSource> open_checkpoint_weights(const std::filesystem::path& model_dir);

/// Opens one file: an adapter's weights. Throws CheckpointError as parse_safetensors().
std::unique_ptr<TensorSource> open_safetensors_file(const std::filesystem::path& path);

/// Tensors of the given names, types and shapes with small pseudo-random values, deterministic, in
/// little memory: those of a type share one block of data. Tensors with "scale" in their name hold
/// numbers above zero, with "zeros" what fits such scales. num_bytes of the infos is filled in.
std::unique_ptr<TensorSource> make_dummy_weights(std::vector<TensorInfo> infos);

}  // namespace halley
