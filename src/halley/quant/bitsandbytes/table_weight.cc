#include "halley/quant/bitsandbytes/table_weight.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/json/json.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/bitsandbytes/bitsandbytes.h"
#include "halley/quant/stored/byte_weight.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

constexpr size_t kTableSize = 16;
constexpr int64_t kBlockMax = int64_t{1} << 20;
constexpr size_t kStateBytesMax = 1 << 16;

/// Scales of blocks that are 8-bit codes themselves: table[code] * scales[block / size] + offset.
struct NestedScales {
  TensorView table;   // f32 [256]
  TensorView scales;  // f32
  int64_t block_size = 256;
  float offset = 0;
};

struct TableTensors {
  std::string where;  // of the weight, for messages
  TensorView codes;   // bytes, two codes each, the first in the upper half
  TensorView table;   // f32 [16]
  TensorView absmax;  // f32, or u8 with `nested`, one for each block
  int64_t block_size = 64;
  std::optional<NestedScales> nested;
};

float f32_at(const TensorView& view, size_t index) {
  float value = 0;
  std::memcpy(&value, view.data + index * sizeof(value), sizeof(value));
  return value;
}

class TableWeight final : public StoredWeight {
 public:
  TableWeight(WeightDesc desc, TableTensors tensors, const Part& part, int64_t in_features)
      : StoredWeight(std::move(desc)),
        tensors_(std::move(tensors)),
        first_(part.row_begin * in_features),
        shape_({part.out_features, in_features}) {}

  TensorView dense_rows() const override {
    std::call_once(is_made_, [this] { make_rows(); });
    return {rows_.data(), desc().stored_dtype, shape_};
  }

 private:
  float scale_of(size_t block) const {
    if (!tensors_.nested) return f32_at(tensors_.absmax, block);
    const NestedScales& nested = *tensors_.nested;
    const auto code = static_cast<size_t>(tensors_.absmax.data[block]);
    const float outer = f32_at(nested.scales, block / static_cast<size_t>(nested.block_size));
    const float scale = f32_at(nested.table, code) * outer;
    return scale + nested.offset;
  }

  void make_rows() const {
    const auto count = static_cast<size_t>(shape_[0] * shape_[1]);
    const DType dtype = desc().stored_dtype;
    rows_.resize(count * static_cast<size_t>(bits_of(dtype) / 8));
    const auto block_size = static_cast<size_t>(tensors_.block_size);
    const auto first = static_cast<size_t>(first_);
    std::array<float, kTableSize> values = {};  // of the block at hand
    for (size_t i = 0; i < count; ++i) {
      const size_t index = first + i;
      if (i == 0 || index % block_size == 0) fill_values(index / block_size, values);
      const auto both = static_cast<uint8_t>(tensors_.codes.data[index / 2]);
      put(dtype, i, values[index % 2 == 0 ? both >> 4 : both & 15u]);
    }
  }

  /// table * scale is rounded once to f32, and once to the type.
  void fill_values(size_t block, std::array<float, kTableSize>& values) const {
    const float scale = scale_of(block);
    for (size_t code = 0; code < kTableSize; ++code) {
      values[code] = f32_at(tensors_.table, code) * scale;
      if (std::isfinite(values[code])) continue;
      throw CheckpointError(str(tensors_.where, ": expected finite weights, got ", values[code],
                                " in block ", block, ". The file is damaged: fetch it again."));
    }
  }

  void put(DType dtype, size_t index, float value) const {
    if (dtype == DType::kF32) {
      std::memcpy(rows_.data() + index * sizeof(value), &value, sizeof(value));
      return;
    }
    const uint16_t bits = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    std::memcpy(rows_.data() + index * sizeof(bits), &bits, sizeof(bits));
  }

  TableTensors tensors_;
  int64_t first_;  // index of the part's first weight in the stored one
  Shape shape_;
  mutable std::once_flag is_made_;
  mutable std::vector<std::byte> rows_;
};

/// The name of the tensor that holds the state: it ends with the type of the numbers.
std::string state_name(const TensorSource& source, const Part& part) {
  for (const char* type : {"nf4", "fp4"}) {
    std::string name = str(part.name, ".weight.quant_state.bitsandbytes__", type);
    if (source.find(name) != nullptr) return name;
  }
  return part.name + ".weight.quant_state.bitsandbytes__nf4";
}

/// The state, JSON in a tensor of bytes.
Json read_state(const TensorSource& source, const std::string& name) {
  const TensorInfo* found = source.find(name);
  const Shape shape = found == nullptr ? Shape{0} : found->shape;
  const TensorInfo& info = find_tensor(source, name, {DType::kU8}, shape);
  const std::string where = str(source.description(), ": tensor ", quote(name));
  if (info.num_bytes > kStateBytesMax) {
    throw CheckpointError(str(where, ": expected at most ", kStateBytesMax, " bytes, got ",
                              info.num_bytes, ". The file is damaged: fetch it again."));
  }
  const TensorView view = source.view(info);
  try {
    Json state =
        parse_json(std::string(reinterpret_cast<const char*>(view.data), info.num_bytes), where);
    if (state.is_object()) return state;
  } catch (const InputError& error) {
    throw CheckpointError(error.what());
  }
  throw CheckpointError(
      str(where, ": expected a JSON object. The file is damaged: fetch it again."));
}

[[noreturn]] void fail_state(const std::string& where, const char* field,
                             const std::string& expected) {
  throw CheckpointError(str(where, ": field '", field, "': expected ", expected,
                            ". Save the model again with a current bitsandbytes."));
}

int64_t block_size_of(const Json& state, const char* field, const std::string& where) {
  const auto found = state.find(field);
  if (found == state.end() || !found->is_number_integer() || *found < 1 || *found > kBlockMax) {
    fail_state(where, field, str("an integer from 1 to ", kBlockMax));
  }
  return found->get<int64_t>();
}

DType dtype_of(const Json& state, const std::string& where) {
  const auto found = state.find("dtype");
  const std::string name = found == state.end() || !found->is_string() ? "" : *found;
  if (name == "float16") return DType::kF16;
  if (name == "bfloat16") return DType::kBf16;
  if (name != "float32") fail_state(where, "dtype", "float16, bfloat16 or float32");
  return DType::kF32;
}

/// The bytes of the codes, of whatever type they are stored as.
TensorView code_bytes(const TensorSource& source, const std::string& name, int64_t num_bytes) {
  const TensorInfo* info = source.find(name);
  const bool is_right = info != nullptr && info->num_bytes == static_cast<size_t>(num_bytes);
  if (is_right) return {source.view(*info).data, DType::kU8, {num_bytes}};
  throw CheckpointError(str(source.description(), ": tensor ", quote(name), ": expected ",
                            num_bytes, " bytes of 4-bit codes, got ",
                            info == nullptr ? "none" : str(info->num_bytes),
                            ". Check that config.json belongs to these weights."));
}

TensorView f32_view(const TensorSource& source, const std::string& name, int64_t count) {
  return source.view(find_tensor(source, name, {DType::kF32}, {count}));
}

NestedScales read_nested(const TensorSource& source, const std::string& prefix, const Json& state,
                         int64_t num_blocks, const std::string& where) {
  NestedScales nested;
  nested.block_size = block_size_of(state, "nested_blocksize", where);
  const auto offset = state.find("nested_offset");
  if (offset == state.end() || !offset->is_number()) fail_state(where, "nested_offset", "a number");
  nested.offset = offset->get<float>();
  constexpr int64_t kCodes = 256;
  nested.table = f32_view(source, prefix + ".nested_quant_map", kCodes);
  nested.scales =
      f32_view(source, prefix + ".nested_absmax", ceil_div(num_blocks, nested.block_size));
  return nested;
}

}  // namespace

bool has_table_weight(const TensorSource& source, const Part& part) {
  return source.find(part.name + ".weight.quant_map") != nullptr;
}

std::unique_ptr<StoredWeight> open_table_weight(const TensorSource& source, const Part& part,
                                                int64_t in_features) {
  const std::string prefix = part.name + ".weight", name_of_state = state_name(source, part);
  const std::string where = str(source.description(), ": tensor ", quote(name_of_state));
  const Json state = read_state(source, name_of_state);
  const auto shape = state.find("shape");
  if (shape == state.end() || *shape != Json({part.stored_rows, in_features})) {
    fail_state(where, "shape", str("[", part.stored_rows, ", ", in_features, "]"));
  }
  const int64_t count = part.stored_rows * in_features;
  TableTensors tensors;
  tensors.where = str(source.description(), ": tensor ", quote(prefix));
  tensors.block_size = block_size_of(state, "blocksize", where);
  const int64_t num_blocks = ceil_div(count, tensors.block_size);
  tensors.codes = code_bytes(source, prefix, ceil_div<int64_t>(count, 2));
  tensors.table = f32_view(source, prefix + ".quant_map", kTableSize);
  const std::string absmax = prefix + ".absmax";
  WeightDesc desc;
  desc.tensor_names = {prefix, absmax, prefix + ".quant_map", name_of_state};
  if (state.contains("nested_blocksize")) {
    tensors.absmax = source.view(find_tensor(source, absmax, {DType::kU8}, {num_blocks}));
    tensors.nested = read_nested(source, prefix, state, num_blocks, where);
    desc.tensor_names.push_back(prefix + ".nested_quant_map");
    desc.tensor_names.push_back(prefix + ".nested_absmax");
  } else {
    tensors.absmax = f32_view(source, absmax, num_blocks);
  }
  desc.format = kQuantBitsAndBytes.name;
  desc.stored_dtype = dtype_of(state, where);
  desc.layout = dense_layout_for(desc.stored_dtype);
  desc.bits = bits_of(desc.stored_dtype);
  for (const std::string& name : desc.tensor_names) {
    desc.stored_bytes += share_of(*source.find(name), part);
  }
  return std::make_unique<TableWeight>(std::move(desc), std::move(tensors), part, in_features);
}

}  // namespace halley
