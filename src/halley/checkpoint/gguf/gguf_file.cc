#include "halley/checkpoint/gguf/gguf_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is little-endian");

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kVersionMin = 2, kVersionMax = 3;
constexpr uint64_t kDefaultAlignment = 32;
// Limits far above every published file; names and keys have those of the format.
constexpr uint64_t kEntriesMax = 65'536;
constexpr uint64_t kTensorsMax = 1 << 20;
constexpr uint64_t kKeyBytesMax = 65'535;
constexpr uint64_t kNameBytesMax = 1024;
constexpr uint32_t kDimensionsMax = 4;
constexpr uint64_t kAlignmentMax = 1 << 20;
/// Bytes of the smallest entry of metadata, and of the tensor table.
constexpr uint64_t kEntryBytesMin = 8 + 4 + 1, kTensorBytesMin = 8 + 4 + 8 + 4 + 8;

/// Bytes of a scalar; 0 for strings, whose length stands before them, and for what is no element.
size_t bytes_of(uint32_t type) {
  constexpr std::array<uint8_t, 13> kBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < kBytes.size() ? kBytes[type] : 0;
}

/// Reads the header's fields one behind the other.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where) {}

  template <typename T>
  T read(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view string(const char* what, uint64_t num_bytes_max) {
    const auto length = read<uint64_t>(what);
    if (length > num_bytes_max) {
      fail(what, str("expected at most ", num_bytes_max, " bytes, got ", length));
    }
    const auto bytes = take(length, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::span<const std::byte> take(uint64_t num_bytes, const char* what) {
    if (num_bytes > num_left()) {
      fail(what, str("expected ", num_bytes, " more bytes, got ", num_left()));
    }
    const auto taken = bytes_.subspan(position_, static_cast<size_t>(num_bytes));
    position_ += static_cast<size_t>(num_bytes);
    return taken;
  }

  size_t position() const { return position_; }
  uint64_t num_left() const { return bytes_.size() - position_; }
  std::span<const std::byte> since(size_t begin) const {
    return bytes_.subspan(begin, position_ - begin);
  }

  [[noreturn]] void fail(const char* what, const std::string& problem) const {
    throw CheckpointError(str(where_, ": ", what, " at byte ", position_, ": ", problem,
                              ". The file is damaged or cut: download it again."));
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& where_;
  size_t position_ = 0;
};

/// The elements of a value, behind its type and count.
std::span<const std::byte> read_elements(Cursor& cursor, uint32_t type, uint64_t count) {
  const size_t begin = cursor.position();
  if (type == static_cast<uint32_t>(GgufValueType::kString)) {
    for (uint64_t i = 0; i < count; ++i) {
      cursor.string("a string of the metadata", std::numeric_limits<uint64_t>::max());
    }
    return cursor.since(begin);
  }
  const size_t element_bytes = bytes_of(type);
  if (element_bytes == 0) {
    cursor.fail("a value of the metadata",
                str("expected a type from 0 to 12 and no array of arrays, got type ", type));
  }
  if (count > cursor.num_left() / element_bytes) {
    cursor.fail("a value of the metadata",
                str("expected at most ", cursor.num_left() / element_bytes,
                    " elements in what is left, got ", count));
  }
  return cursor.take(count * element_bytes, "a value of the metadata");
}

void read_entry(Cursor& cursor, GgufMetadata& metadata) {
  const std::string_view key = cursor.string("a key of the metadata", kKeyBytesMax);
  auto type = cursor.read<uint32_t>("a type of the metadata");
  GgufValue value;
  if (type == static_cast<uint32_t>(GgufValueType::kArray)) {
    value.is_array = true;
    type = cursor.read<uint32_t>("a type of the metadata");
    value.count = cursor.read<uint64_t>("a count of the metadata");
  }
  value.bytes = read_elements(cursor, type, value.count);
  value.type = static_cast<GgufValueType>(type);
  if (!metadata.add(key, value)) {
    cursor.fail("a key of the metadata", str("expected each once, got ", quote(key), " twice"));
  }
}

/// A row of the tensor table; `begin` counts from the start of the data for now.
GgufTensor read_tensor(Cursor& cursor, const std::string& where) {
  GgufTensor tensor;
  tensor.name = cursor.string("a tensor's name", kNameBytesMax);
  const auto num_dims = cursor.read<uint32_t>("a tensor's dimensions");
  if (num_dims == 0 || num_dims > kDimensionsMax) {
    cursor.fail("a tensor's dimensions", str("expected 1 to ", kDimensionsMax, ", got ", num_dims));
  }
  for (uint32_t i = 0; i < num_dims; ++i) {
    const auto size = cursor.read<uint64_t>("a tensor's size");
    if (size == 0 || size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      cursor.fail("a tensor's size", str("expected 1 to 2^63 - 1, got ", size));
    }
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  const auto type = cursor.read<uint32_t>("a tensor's type");
  tensor.begin = cursor.read<uint64_t>("a tensor's offset");
  tensor.type = find_ggml_type(type);
  if (tensor.type == nullptr) {
    throw UnsupportedError(str(
        where, ": tensor ", quote(tensor.name), ": expected one of the types ", known_ggml_types(),
        ", got ", ggml_type_name(type), ". Take a file of another quantization of this model."));
  }
  return tensor;
}

[[noreturn]] void fail_tensor(const std::string& where, const GgufTensor& tensor,
                              const std::string& problem) {
  throw CheckpointError(str(where, ": tensor ", quote(tensor.name), ": ", problem,
                            ". The file is damaged or cut: download it again."));
}

size_t bytes_of(const GgufTensor& tensor, const std::string& where) {
  const int64_t columns = tensor.shape.back();
  if (columns % tensor.type->block_values != 0) {
    fail_tensor(where, tensor,
                str("expected rows of a multiple of ", tensor.type->block_values, " values for ",
                    tensor.type->name, ", got ", columns));
  }
  const auto count = num_elements_of(tensor.shape);
  const auto num_bytes =
      count ? checked_mul(static_cast<uint64_t>(*count / tensor.type->block_values),
                          uint64_t{tensor.type->block_bytes})
            : std::nullopt;
  if (!num_bytes) {
    fail_tensor(where, tensor, str("expected a size below 2^63, got the shape ", tensor.shape));
  }
  return *num_bytes;
}

/// Makes offsets count from the start of the file; checks that data are inside of it and apart.
void locate_tensors(std::vector<GgufTensor>& tensors, uint64_t data_begin, uint64_t alignment,
                    uint64_t file_bytes, const std::string& where) {
  for (GgufTensor& tensor : tensors) {
    tensor.num_bytes = bytes_of(tensor, where);
    if (tensor.begin % alignment != 0) {
      fail_tensor(
          where, tensor,
          str("expected an offset that is a multiple of ", alignment, ", got ", tensor.begin));
    }
    const auto begin = checked_add<uint64_t>(data_begin, tensor.begin);
    const auto end = begin ? checked_add<uint64_t>(*begin, tensor.num_bytes) : std::nullopt;
    if (!end || *end > file_bytes) {
      fail_tensor(
          where, tensor,
          str("expected ", tensor.num_bytes, " bytes at offset ", tensor.begin,
              " of the data inside of the file of ", file_bytes, " bytes, got an end behind it"));
    }
    tensor.begin = *begin;
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const GgufTensor& a, const GgufTensor& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < tensors.size(); ++i) {
    const GgufTensor& before = tensors[i - 1];
    if (before.begin + before.num_bytes <= tensors[i].begin) continue;
    fail_tensor(where, tensors[i],
                str("expected data of its own, got some of tensor ", quote(before.name)));
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const GgufTensor& a, const GgufTensor& b) { return a.name < b.name; });
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i - 1].name != tensors[i].name) continue;
    fail_tensor(where, tensors[i], "expected each name once, got it twice");
  }
}

void check_version(Cursor& cursor, const std::string& where) {
  const auto version = cursor.read<uint32_t>("the version");
  if (version >= kVersionMin && version <= kVersionMax) return;
  const bool is_swapped = (version & 0xFFFFu) == 0;
  throw UnsupportedError(str(where, ": version: expected ", kVersionMin, " or ", kVersionMax,
                             ", got ", is_swapped ? "that of a big-endian file" : str(version),
                             ". Convert the model with a current llama.cpp",
                             is_swapped ? " on a little-endian machine." : "."));
}

uint64_t read_count(Cursor& cursor, const char* what, uint64_t max, uint64_t bytes_min) {
  const auto count = cursor.read<uint64_t>(what);
  if (count > max || count > cursor.num_left() / bytes_min) {
    cursor.fail(what, str("expected at most ", std::min(max, cursor.num_left() / bytes_min),
                          " in what is left of the file, got ", count));
  }
  return count;
}

uint64_t alignment_of(const GgufMetadata& metadata) {
  const auto alignment = metadata.integer("general.alignment", 1, kAlignmentMax);
  if (!alignment) return kDefaultAlignment;
  const auto value = static_cast<uint64_t>(*alignment);
  if (!std::has_single_bit(value)) {
    metadata.fail("general.alignment", str("expected a power of two, got ", value, "."));
  }
  return value;
}

}  // namespace

const char* name_of(GgufValueType type) {
  constexpr std::array kNames = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                 "bool", "string", "array", "u64", "i64", "f64"};
  const auto index = static_cast<size_t>(type);
  return index < kNames.size() ? kNames[index] : "unknown";
}

const GgufTensor* GgufHeader::find(std::string_view name) const {
  const auto it = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const GgufTensor& tensor, std::string_view key) { return tensor.name < key; });
  return it != tensors.end() && it->name == name ? &*it : nullptr;
}

GgufHeader parse_gguf(std::span<const std::byte> file_bytes, const std::string& where) {
  Cursor cursor(file_bytes, where);
  const auto magic = cursor.take(kMagic.size(), "the file's first bytes");
  if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0) {
    throw CheckpointError(str(where, ": expected a GGUF file, which begins with ", quote(kMagic),
                              ", got ",
                              quote({reinterpret_cast<const char*>(magic.data()), magic.size()}),
                              ". Give a GGUF file or a model's directory."));
  }
  check_version(cursor, where);
  const uint64_t num_tensors =
      read_count(cursor, "the number of tensors", kTensorsMax, kTensorBytesMin);
  const uint64_t num_entries =
      read_count(cursor, "the number of metadata entries", kEntriesMax, kEntryBytesMin);
  GgufHeader header{.metadata = GgufMetadata(where), .tensors = {}};
  for (uint64_t i = 0; i < num_entries; ++i) read_entry(cursor, header.metadata);
  const uint64_t alignment = alignment_of(header.metadata);
  for (uint64_t i = 0; i < num_tensors; ++i) header.tensors.push_back(read_tensor(cursor, where));
  locate_tensors(header.tensors, round_up<uint64_t>(cursor.position(), alignment), alignment,
                 file_bytes.size(), where);
  for (GgufTensor& tensor : header.tensors) tensor.data = file_bytes.data() + tensor.begin;
  return header;
}

bool is_gguf_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  if (path.extension() == ".gguf") return true;
  std::array<char, 4> first{};
  std::ifstream(path, std::ios::binary).read(first.data(), first.size());
  return std::string_view(first.data(), first.size()) == kMagic;
}

}  // namespace halley
