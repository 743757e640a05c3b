// For tests: metadata of GGUF files in memory, which a test may change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "halley/checkpoint/gguf/gguf_file.h"

namespace halley {

/// Owns the bytes that get() refers to.
class MetadataInMemory {
 public:
  /// An array, or a scalar of one value.
  template <typename T>
  MetadataInMemory& values(const std::string& key, GgufValueType type, const std::vector<T>& values,
                           bool is_array = true) {
    std::vector<std::byte> bytes;
    for (const T value : values) append(value, bytes);
    return put(key, type, values.size(), is_array, std::move(bytes));
  }
  MetadataInMemory& strings(const std::string& key, const std::vector<std::string>& texts,
                            bool is_array = true) {
    std::vector<std::byte> bytes;
    for (const std::string& text : texts) {
      append(uint64_t{text.size()}, bytes);
      const auto* begin = reinterpret_cast<const std::byte*>(text.data());
      bytes.insert(bytes.end(), begin, begin + text.size());
    }
    return put(key, GgufValueType::kString, texts.size(), is_array, std::move(bytes));
  }
  MetadataInMemory& string(const std::string& key, const std::string& text) {
    return strings(key, {text}, false);
  }
  MetadataInMemory& integer(const std::string& key, int64_t value) {
    return values<int64_t>(key, GgufValueType::kI64, {value}, false);
  }
  MetadataInMemory& number(const std::string& key, float value) {
    return values<float>(key, GgufValueType::kF32, {value}, false);
  }
  MetadataInMemory& flag(const std::string& key, bool value) {
    return values<uint8_t>(key, GgufValueType::kBool, {value}, false);
  }
  void remove(const std::string& key) { values_.erase(key); }

  /// The metadata of a file "f.gguf". This must outlive it.
  GgufMetadata get() const {
    GgufMetadata metadata("f.gguf");
    for (const auto& [key, value] : values_) {
      GgufValue own = value.value;
      own.bytes = value.bytes;
      metadata.add(key, own);
    }
    return metadata;
  }

 private:
  struct Value {
    GgufValue value;
    std::vector<std::byte> bytes;
  };

  template <typename T>
  static void append(T value, std::vector<std::byte>& bytes) {
    const auto* begin = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), begin, begin + sizeof(T));
  }
  MetadataInMemory& put(const std::string& key, GgufValueType type, uint64_t count, bool is_array,
                        std::vector<std::byte> bytes) {
    values_[key] = {{.type = type, .is_array = is_array, .count = count, .bytes = {}},
                    std::move(bytes)};
    return *this;
  }

  std::map<std::string, Value> values_;
};

}  // namespace halley
