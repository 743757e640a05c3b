// Any bytes as a safetensors file, and as the index of one that is sharded. Only our own errors may
// come out; what is accepted must keep the promises that readers of tensors rely on.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/checkpoint/safetensors/weight_index.h"

namespace {

// Every byte of every tensor is inside the file, and the tensors together are all of its data.
void check_header(const halley::SafetensorsHeader& header, std::span<const std::byte> bytes) {
  HALLEY_CHECK(header.data_start <= bytes.size(), header.data_start, bytes.size());
  const size_t data_bytes = bytes.size() - header.data_start;
  size_t total = 0;
  for (const auto& entry : header.entries) {
    HALLEY_CHECK(entry.offset <= data_bytes, entry.offset, data_bytes);
    HALLEY_CHECK(entry.info.num_bytes <= data_bytes - entry.offset, entry.info.num_bytes);
    const halley::TensorView view{bytes.data() + header.data_start + entry.offset, entry.info.dtype,
                                  entry.info.shape};
    HALLEY_CHECK(view.num_bytes() == entry.info.num_bytes, view.num_bytes(), entry.info.num_bytes);
    total += entry.info.num_bytes;
  }
  HALLEY_CHECK(total == data_bytes, total, data_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    check_header(halley::parse_safetensors(bytes, "fuzz"), bytes);
  } catch (const halley::CheckpointError&) {
  }
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const auto& [tensor, shard] : halley::parse_weight_index(text, "fuzz")) {
      HALLEY_CHECK(shard.find('/') == std::string::npos && shard.ends_with(".safetensors"), shard);
    }
  } catch (const halley::CheckpointError&) {
  }
  return 0;
}
