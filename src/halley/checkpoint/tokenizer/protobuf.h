// Reads the fields of a protobuf message, with every length checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace halley {

struct ProtobufField {
  uint32_t number = 0;
  uint64_t integer = 0;    // of an integer or a fixed field
  std::string_view bytes;  // of a string, bytes or message field
  bool is_bytes = false;
};

/// https://protobuf.dev/programming-guides/encoding
class ProtobufReader {
 public:
  ProtobufReader(std::string_view message, const std::string& where)
      : rest_(message), where_(where) {}

  /// False at the end. Throws InputError for bytes that are no message.
  bool next(ProtobufField& field);

 private:
  uint64_t varint();
  std::string_view take(uint64_t num_bytes);

  std::string_view rest_;
  const std::string& where_;
};

}  // namespace halley
