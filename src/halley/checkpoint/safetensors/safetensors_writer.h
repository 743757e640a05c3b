// Writes one safetensors file, tensor by tensor, without holding more than the caller's piece.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_source.h"

namespace halley {

/// The file stands at `path` only after finish(): until then the data goes to `path` + ".partial",
/// which the destructor removes. Sizes are fixed by the tensors given at the start.
class SafetensorsWriter {
 public:
  /// num_bytes of the infos is computed from dtype and shape. Throws InputError where the file
  /// cannot be created.
  SafetensorsWriter(std::filesystem::path path, std::vector<TensorInfo> tensors,
                    const std::map<std::string, std::string>& metadata);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// Appends to the data of `tensor` (an index into the constructor's list). Pieces of different
  /// tensors may alternate. More bytes than the tensor has are a bug of the caller.
  void append(size_t tensor, std::span<const std::byte> bytes);

  /// Checks that every tensor is complete, and puts the file in its place. Throws DeviceError where
  /// the disk did not take it.
  void finish();

 private:
  struct Slot {
    size_t offset = 0;  // in the file, of the next byte
    size_t end = 0;
  };

  std::filesystem::path path_;
  std::filesystem::path partial_path_;
  std::ofstream file_;
  std::vector<Slot> slots_;
  bool is_finished_ = false;
};

}  // namespace halley
