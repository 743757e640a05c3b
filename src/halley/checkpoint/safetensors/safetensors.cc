#include "halley/checkpoint/safetensors/safetensors.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/json/json.h"

namespace halley {
namespace {

constexpr size_t kLengthBytes = 8;               // the header's length, little-endian
constexpr size_t kHeaderBytesMax = 100'000'000;  // the format's own limit
constexpr size_t kRankMax = 64;                  // what NumPy and PyTorch can hold
// A tensor takes about 13 values. The largest published checkpoints have some 200,000 tensors in
// all their shards; a parsed value takes up to 100 bytes.
constexpr size_t kHeaderValuesMax = 4'000'000;
constexpr std::string_view kMetadataKey = "__metadata__";
constexpr const char* kDTypeNames =
    "BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, I16, "
    "U16, F16, BF16, I32, U32, F32, C64, F64, I64 or U64";

// A value of the file for a message: short, and safe to show.
std::string describe(const Json& value) {
  if (value.is_string()) return halley::quote(value.get_ref<const std::string&>());
  if (value.is_number_integer() && !value.is_number_unsigned() && value.get<int64_t>() == 0) {
    return "-0";
  }
  if (value.is_primitive()) return value.dump();
  return str("an ", type_name_of(value), " of ", value.size());
}

std::string hex_byte(char byte) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "0x%02X",
                static_cast<unsigned>(static_cast<uint8_t>(byte)));
  return text.data();
}

// Reads the header of one file. Every check names the file, and the tensor and field where it can.
class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> file_bytes, const std::string& where)
      : file_bytes_(file_bytes), where_(where) {}

  SafetensorsHeader read() {
    const std::string_view text = header_text();
    header_.data_start = kLengthBytes + text.size();
    const Json json = parse_text(text);
    header_.entries.reserve(json.size());
    for (const auto& [name, value] : json.items()) {
      if (name == kMetadataKey) {
        read_metadata(value);
      } else {
        header_.entries.push_back(read_entry(name, value));  // sorted, since Json sorts its keys
      }
    }
    check_coverage();
    return std::move(header_);
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw CheckpointError(str(where_, ": ", problem));
  }

  [[noreturn]] void fail_tensor(std::string_view tensor, const char* field,
                                const std::string& problem) const {
    throw CheckpointError(
        str(where_, ": tensor ", halley::quote(tensor), ": field '", field, "': ", problem));
  }

  // The header's bytes, still with the spaces that may follow the JSON.
  std::string_view header_text() const {
    const size_t file_size = file_bytes_.size();
    if (file_size < kLengthBytes) {
      fail(str("expected at least 8 bytes, which hold the header's length, got ", file_size,
               ". The file is cut short: download it again."));
    }
    uint64_t length = 0;
    for (size_t i = 0; i < kLengthBytes; ++i) {
      length |= std::to_integer<uint64_t>(file_bytes_[i]) << (8 * i);
    }
    if (length > kHeaderBytesMax) {
      fail(str("header length: expected at most ", kHeaderBytesMax, " bytes, got ", length,
               ". This is not a safetensors file."));
    }
    if (length > file_size - kLengthBytes) {
      fail(str("header length: expected at most ", file_size - kLengthBytes,
               " bytes, which is what follows in the file, got ", length,
               ". The file is cut short: download it again."));
    }
    return {reinterpret_cast<const char*>(file_bytes_.data()) + kLengthBytes,
            static_cast<size_t>(length)};
  }

  Json parse_text(std::string_view text) const {
    if (text.empty() || text.front() != '{') {
      fail(str("header: expected '{' as its first byte, got ",
               text.empty() ? "an empty header" : hex_byte(text.front()), "."));
    }
    // The format pads with spaces and nothing else.
    const std::string_view trimmed = text.substr(0, text.find_last_not_of(' ') + 1);
    if (trimmed.back() != '}') {
      fail(str("header: expected '}' and then only spaces at its end, got ",
               hex_byte(trimmed.back()), "."));
    }
    // The JSON library takes a zero byte for the end of its input and would ignore what follows.
    if (const size_t zero = trimmed.find('\0'); zero != std::string_view::npos) {
      fail(str("header: expected JSON text, got a zero byte at byte ", zero, " of the header."));
    }
    try {
      return parse_json(trimmed, str(where_, ": header"), {.num_values_max = kHeaderValuesMax});
    } catch (const InputError& error) {  // here it is the checkpoint that is wrong
      throw CheckpointError(error.what());
    }
  }

  void read_metadata(const Json& value) {
    if (!value.is_object()) {
      fail(str("header: field '__metadata__': expected an object of strings, got ", describe(value),
               "."));
    }
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        fail(str("header: field '__metadata__': key ", halley::quote(key),
                 ": expected a string, got ", describe(text), "."));
      }
      header_.metadata.emplace(key, text.get<std::string>());
    }
  }

  // Members beyond the three are ignored, as the reference implementation does.
  SafetensorsHeader::Entry read_entry(const std::string& name, const Json& value) const {
    if (!value.is_object()) {
      fail(str("tensor ", halley::quote(name),
               ": expected an object with dtype, shape and data_offsets, got ", describe(value),
               "."));
    }
    SafetensorsHeader::Entry entry;
    entry.info.name = name;
    entry.info.dtype = read_dtype(name, value);
    entry.info.shape = read_shape(name, value);
    const auto [begin, end] = read_offsets(name, value);
    entry.info.num_bytes = num_bytes_of(entry.info);
    if (entry.info.num_bytes != end - begin) {
      fail_tensor(
          name, "data_offsets",
          str("expected ", entry.info.num_bytes, " bytes, which is what ", entry.info.dtype, " ",
              entry.info.shape, " takes, got ", end - begin, " ([", begin, ", ", end, "])."));
    }
    entry.offset = begin;
    return entry;
  }

  const Json& member(const std::string& name, const Json& value, const char* field) const {
    const auto it = value.find(field);
    if (it == value.end()) fail_tensor(name, field, "expected a value, got nothing.");
    return *it;
  }

  DType read_dtype(const std::string& name, const Json& value) const {
    const Json& text = member(name, value, "dtype");
    const auto dtype = text.is_string() ? dtype_from_safetensors(text.get_ref<const std::string&>())
                                        : std::nullopt;
    if (!dtype) {
      fail_tensor(name, "dtype", str("expected ", kDTypeNames, ", got ", describe(text), "."));
    }
    return *dtype;
  }

  Shape read_shape(const std::string& name, const Json& value) const {
    const Json& dims = member(name, value, "shape");
    if (!dims.is_array() || dims.size() > kRankMax) {
      fail_tensor(
          name, "shape",
          str("expected an array of at most ", kRankMax, " dimensions, got ", describe(dims), "."));
    }
    Shape shape;
    shape.reserve(dims.size());
    for (const Json& dim : dims) {
      constexpr auto kDimMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
      if (!dim.is_number_unsigned() || dim.get<uint64_t>() > kDimMax) {
        fail_tensor(name, "shape",
                    str("expected integers from 0 to ", kDimMax, ", got ", describe(dim), "."));
      }
      shape.push_back(dim.get<int64_t>());
    }
    return shape;
  }

  std::pair<size_t, size_t> read_offsets(const std::string& name, const Json& value) const {
    const Json& offsets = member(name, value, "data_offsets");
    if (!offsets.is_array() || offsets.size() != 2) {
      fail_tensor(name, "data_offsets",
                  str("expected an array of 2 integers, got ", describe(offsets), "."));
    }
    for (const Json& offset : offsets) {
      if (!offset.is_number_unsigned()) {
        fail_tensor(name, "data_offsets",
                    str("expected integers from 0 to 2^64-1, got ", describe(offset), "."));
      }
    }
    const auto begin = offsets[0].get<uint64_t>();
    const auto end = offsets[1].get<uint64_t>();
    const size_t data_bytes = file_bytes_.size() - header_.data_start;
    if (end < begin) {
      fail_tensor(
          name, "data_offsets",
          str("expected the end not to be before the begin, got [", begin, ", ", end, "]."));
    }
    if (end > data_bytes) {
      fail_tensor(name, "data_offsets",
                  str("expected an end of at most ", data_bytes,
                      ", which is the size of the file's data, got ", end,
                      ". The file may be cut short: download it again."));
    }
    return {begin, end};
  }

  size_t num_bytes_of(const TensorInfo& info) const {
    const auto num_elements = num_elements_of(info.shape);
    const auto num_bits = num_elements ? checked_mul(static_cast<uint64_t>(*num_elements),
                                                     static_cast<uint64_t>(bits_of(info.dtype)))
                                       : std::nullopt;
    if (!num_bits) {
      fail_tensor(info.name, "shape",
                  str("expected a size that fits 64 bits, got ", info.dtype, " ", info.shape, "."));
    }
    if (*num_bits % 8 != 0) {
      fail_tensor(info.name, "shape",
                  str("expected whole bytes, got ", info.dtype, " ", info.shape, ", which takes ",
                      *num_bits, " bits."));
    }
    return *num_bits / 8;
  }

  // The tensors must cover the data exactly: an overlap lets a small file ask for much memory, a
  // hole can hide another file.
  void check_coverage() const {
    const auto& entries = header_.entries;
    std::vector<const SafetensorsHeader::Entry*> by_offset;
    by_offset.reserve(entries.size());
    for (const auto& entry : entries) by_offset.push_back(&entry);
    std::sort(by_offset.begin(), by_offset.end(), [](const auto* a, const auto* b) {
      return std::pair(a->offset, a->info.num_bytes) < std::pair(b->offset, b->info.num_bytes);
    });
    size_t covered = 0;
    const SafetensorsHeader::Entry* previous = nullptr;
    for (const auto* entry : by_offset) {
      if (entry->offset != covered) {
        fail_tensor(
            entry->info.name, "data_offsets",
            str("expected to begin at ", covered, ", where ",
                previous == nullptr ? std::string("the data begins")
                                    : str("tensor ", halley::quote(previous->info.name), " ends"),
                ", got ", entry->offset,
                entry->offset > covered ? ": a hole in the data." : ": tensors overlap."));
      }
      covered = entry->offset + entry->info.num_bytes;  // <= the file's size, see read_offsets
      previous = entry;
    }
    const size_t data_bytes = file_bytes_.size() - header_.data_start;
    if (covered != data_bytes) {
      fail(str("expected ", covered, " bytes of data, which is where the last tensor ends, got ",
               data_bytes, ". Bytes that belong to no tensor are not allowed."));
    }
  }

  std::span<const std::byte> file_bytes_;
  const std::string& where_;
  SafetensorsHeader header_;
};

}  // namespace

SafetensorsHeader parse_safetensors(std::span<const std::byte> file_bytes,
                                    const std::string& where) {
  return HeaderReader(file_bytes, where).read();
}

}  // namespace halley
