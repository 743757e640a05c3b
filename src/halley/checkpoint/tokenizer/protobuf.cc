#include "halley/checkpoint/tokenizer/protobuf.h"

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {

bool ProtobufReader::next(ProtobufField& field) {
  if (rest_.empty()) return false;
  const uint64_t tag = varint();
  field = {};
  field.number = static_cast<uint32_t>(tag >> 3);
  if (tag >> 3 == 0 || tag >> 3 >= uint64_t{1} << 29) {
    throw InputError(str(where_, ": expected a protobuf field number, got ", tag >> 3,
                         ". The file is damaged or no SentencePiece model."));
  }
  switch (tag & 7) {
    case 0:
      field.integer = varint();
      return true;
    case 1:
    case 5: {
      const std::string_view bytes = take((tag & 7) == 1 ? 8 : 4);
      for (size_t i = bytes.size(); i-- > 0;) {
        field.integer = field.integer << 8 | static_cast<uint8_t>(bytes[i]);
      }
      return true;
    }
    case 2:
      field.bytes = take(varint());
      field.is_bytes = true;
      return true;
    default:
      throw InputError(str(where_, ": expected protobuf wire type 0, 1, 2 or 5, got ", tag & 7,
                           ". The file is damaged or no SentencePiece model."));
  }
}

uint64_t ProtobufReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t byte = static_cast<uint8_t>(take(1)[0]);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  throw InputError(str(where_,
                       ": expected a protobuf integer of at most 10 bytes. The file is "
                       "damaged or no SentencePiece model."));
}

std::string_view ProtobufReader::take(uint64_t num_bytes) {
  if (num_bytes > rest_.size()) {
    throw InputError(str(where_, ": expected ", num_bytes, " more bytes, got ", rest_.size(),
                         ". The file is cut off or no SentencePiece model."));
  }
  const std::string_view taken = rest_.substr(0, num_bytes);
  rest_.remove_prefix(num_bytes);
  return taken;
}

}  // namespace halley
