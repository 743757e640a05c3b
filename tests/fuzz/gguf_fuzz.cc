// Any bytes as a GGUF file. Only our own errors may come out; what is accepted must keep the
// promises that readers of tensors rely on, and its texts must be read without one byte amiss.
#include <cstddef>
#include <cstdint>
#include <span>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/checkpoint/gguf/architecture.h"
#include "halley/checkpoint/gguf/config_text.h"
#include "halley/checkpoint/gguf/gguf_file.h"
#include "halley/checkpoint/gguf/mapped_gguf.h"
#include "halley/checkpoint/gguf/tokenizer_text.h"

namespace {

/// Every byte of every tensor is inside of the file, and of that tensor alone.
void check_tensors(const halley::GgufHeader& header, std::span<const std::byte> bytes) {
  size_t total = 0;
  for (const halley::GgufTensor& tensor : header.tensors) {
    HALLEY_CHECK(tensor.begin <= bytes.size(), tensor.begin, bytes.size());
    HALLEY_CHECK(tensor.num_bytes <= bytes.size() - tensor.begin, tensor.num_bytes);
    HALLEY_CHECK(halley::num_elements_of(tensor.shape).has_value(), tensor.name);
    total += tensor.num_bytes;
  }
  HALLEY_CHECK(total <= bytes.size(), total, bytes.size());
}

template <typename Call>
void try_call(const Call& call) {
  try {
    call();
  } catch (const halley::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try_call([&] {
    const halley::GgufHeader header = halley::parse_gguf(bytes, "fuzz");
    check_tensors(header, bytes);
    try_call([&] { halley::join_gguf_parts({header}); });
    try_call([&] { halley::join_gguf_parts({header, header}); });
    try_call([&] { halley::name_gguf_tensors(header); });
    try_call([&] { halley::make_config_text(header); });
    try_call([&] { halley::make_generation_config_text(header.metadata); });
    try_call([&] { halley::make_tokenizer_json(header.metadata); });
    try_call([&] { halley::make_tokenizer_model(header.metadata); });
    try_call([&] { halley::make_tokenizer_config(header.metadata); });
  });
  return 0;
}
