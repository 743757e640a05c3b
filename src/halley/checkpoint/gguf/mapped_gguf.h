// A model in a GGUF file, or in the parts of a split one (NAME-00001-of-00003.gguf), as one header.
#pragma once

#include <filesystem>
#include <vector>

#include "halley/base/file.h"
#include "halley/checkpoint/gguf/gguf_file.h"

namespace halley {

/// The first part's metadata and the tensors of all. Throws CheckpointError, naming the file, where
/// a part is not the one that its place says, counts another number of parts, or has a tensor that
/// another has too, and where tensors are missing.
GgufHeader join_gguf_parts(std::vector<GgufHeader> parts);

/// The mapped files and what their headers say.
class MappedGguf {
 public:
  /// `path` is the file, or any part of a split one: the others are in the same folder. Throws as
  /// parse_gguf() and join_gguf_parts(), and CheckpointError where a part is missing.
  explicit MappedGguf(const std::filesystem::path& path);

  const GgufHeader& header() const { return header_; }

 private:
  std::vector<MappedFile> files_;  // in the order of parts
  GgufHeader header_;              // refers to their bytes
};

}  // namespace halley
