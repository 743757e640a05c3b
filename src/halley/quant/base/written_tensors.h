// Shared by the encoders of all formats: makes tensors of values, packs codes into words, and
// rejects weights that a layout cannot hold.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "halley/core/tensor.h"
#include "halley/quant/base/quantized_weight.h"

namespace halley {

/// A tensor of these elements, whose bytes are what `dtype` asks for.
template <typename Element>
CheckpointTensor written_tensor(std::string name, DType dtype, Shape shape,
                                const std::vector<Element>& elements) {
  CheckpointTensor tensor;
  tensor.data.resize(elements.size() * sizeof(Element));
  if (!elements.empty()) std::memcpy(tensor.data.data(), elements.data(), tensor.data.size());
  tensor.info = {.name = std::move(name),
                 .dtype = dtype,
                 .shape = std::move(shape),
                 .num_bytes = tensor.data.size()};
  return tensor;
}

/// An f16 tensor. Requires values that are representable in f16.
CheckpointTensor written_f16(std::string name, Shape shape, std::span<const float> values);

/// [num_rows, num_columns] to [num_columns, num_rows].
std::vector<float> transposed(std::span<const float> values, int64_t num_rows, int64_t num_columns);

/// Packs a stream of codes, each into the next `bits` bits of words that lie `stride` apart and are
/// zero at first. A code may cross two words.
struct CodeWriter {
  uint32_t* words = nullptr;
  int64_t stride = 1;
  int bits = 4;

  void put(int64_t index, uint32_t code) const {
    const int64_t first_bit = index * bits;
    const auto shift = static_cast<int>(first_bit % 32);
    uint32_t* word = words + first_bit / 32 * stride;
    *word |= code << shift;
    if (shift + bits > 32) word[stride] |= code >> (32 - shift);
  }
};

/// Throws UnsupportedError 'layer "<name>": expected <expected>, got <got>.' with the advice to
/// leave the layer out by an override or to choose another format.
[[noreturn]] void reject_to_write(const std::string& layer, const std::string& expected,
                                  const std::string& got);

/// Rejects a size that is no multiple: of outputs (N), of inputs (K).
void require_multiple(const std::string& layer, const char* dimension, int64_t size,
                      int64_t multiple);

/// Rejects other widths than these.
void require_bits(const std::string& layer, const QuantizedWeight& weight,
                  std::initializer_list<int> allowed);

/// Rejects a last group that is shorter than the others.
void require_whole_groups(const std::string& layer, const QuantizedWeight& weight);

/// Rejects a g_idx: groups whose inputs are not consecutive.
void require_consecutive_groups(const std::string& layer, const QuantizedWeight& weight);

/// Ends the process where the vectors of a weight do not have the sizes of its fields: a bug of the
/// quantizer.
void check_sizes(const QuantizedWeight& weight);

}  // namespace halley
