// The header of a GGUF file: metadata and the table of tensors, every bound checked
// (github.com/ggml-org/ggml, docs/gguf.md). Knows no model architecture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halley/checkpoint/gguf/ggml_type.h"
#include "halley/core/tensor.h"

namespace halley {

/// Types of metadata values, as the file numbers them.
enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// "u32", "array of strings": for messages.
const char* name_of(GgufValueType type);

/// A value in the file's bytes, checked: scalars and strings are arrays of one element.
struct GgufValue {
  GgufValueType type = GgufValueType::kU8;  // of the elements
  bool is_array = false;
  uint64_t count = 1;
  std::span<const std::byte> bytes;  // of the elements; strings have 8 bytes of length before them
};

/// Typed access to metadata, of at most 2^24 elements a value. Views into the file's bytes, which
/// must outlive it. Getters throw InputError "<file>: metadata 'llama.block_count': expected ...,
/// got ..." for another type or range; those that return an optional give nothing for a key that is
/// absent.
class GgufMetadata {
 public:
  explicit GgufMetadata(std::string where) : where_(std::move(where)) {}

  /// False where the key is there already.
  bool add(std::string_view key, const GgufValue& value);

  bool has(std::string_view key) const { return find(key) != nullptr; }
  bool is_array(std::string_view key) const;
  /// Any integer type.
  std::optional<int64_t> integer(std::string_view key, int64_t min, int64_t max) const;
  int64_t required_integer(std::string_view key, int64_t min, int64_t max) const;
  /// f32, f64 or any integer; finite.
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  /// Arrays; a scalar integer counts as an array of one.
  std::optional<std::vector<int64_t>> integers(std::string_view key) const;
  std::optional<std::vector<double>> numbers(std::string_view key) const;
  std::optional<std::vector<bool>> booleans(std::string_view key) const;
  std::optional<std::vector<std::string_view>> strings(std::string_view key) const;

  const std::string& where() const { return where_; }
  /// Throws InputError "<file>: metadata '<key>': <problem>".
  [[noreturn]] void fail(std::string_view key, const std::string& problem) const;

 private:
  const GgufValue* find(std::string_view key) const;
  const GgufValue* find_as(std::string_view key, const char* expected, bool may_be_array,
                           bool (*accepts)(GgufValueType)) const;

  std::string where_;
  std::map<std::string_view, GgufValue> values_;
};

/// One tensor of the table.
struct GgufTensor {
  std::string name;
  const GgmlTypeInfo* type = nullptr;
  Shape shape;       // slowest dimension first, as everywhere here; the file has the fastest first
  size_t begin = 0;  // bytes from the start of the file
  size_t num_bytes = 0;
  const std::byte* data = nullptr;  // at `begin` of the file's bytes
};

struct GgufHeader {
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // sorted by name

  /// Null where there is none of that name.
  const GgufTensor* find(std::string_view name) const;
};

/// Checks `file_bytes` (a whole file) against every rule; `where` is the file's name for messages.
/// A part of a split model is a file like others: mapped_gguf.h joins them. The result refers to
/// the bytes. Throws CheckpointError for bytes that are no such file, InputError for a bad
/// alignment, UnsupportedError for a version or a tensor type that is not read.
GgufHeader parse_gguf(std::span<const std::byte> file_bytes, const std::string& where);

/// Whether the path is a regular file that begins as GGUF files do, or is named like one.
bool is_gguf_file(const std::filesystem::path& path);

}  // namespace halley
