// The folder of a checkpoint that is being made: complete under its name, or not there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "halley/json/json.h"
#include "halley/quant/base/quantized_weight.h"

namespace halley {

class OutputFolder {
 public:
  /// Opens or goes on with `path` + ".partial". Throws InputError where `path` exists or the
  /// partial folder was made with another fingerprint; DeviceError where it cannot be written.
  OutputFolder(std::filesystem::path path, const std::string& fingerprint);

  /// The note of a finished shard, or nothing where it was not finished.
  std::optional<Json> find_shard(const std::string& name) const;
  std::filesystem::path shard_path(const std::string& name) const;
  /// Writes the tensors as shard `name` and then the note, which makes it count as finished.
  void write_shard(const std::string& name, const std::vector<CheckpointTensor>& tensors,
                   const OrderedJson& note);

  /// Numbers the shards in the order of `names`, writes the index and config.json, copies the other
  /// files of `model_dir`, removes the notes, and gives the folder its name. Returns the bytes of
  /// the weights.
  double finish(const std::vector<std::string>& names, const OrderedJson& config,
                const std::filesystem::path& model_dir);

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
};

}  // namespace halley
