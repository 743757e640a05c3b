#include "halley/checkpoint/safetensors/safetensors_writer.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/json/json.h"

namespace halley {
namespace {

const char* safetensors_name_of(DType dtype) {
  for (const char* name : {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "I16", "U16", "F16", "BF16",
                           "I32", "U32", "F32", "F64", "I64", "U64"}) {
    if (dtype_from_safetensors(name) == dtype) return name;
  }
  HALLEY_CHECK(false, dtype);
  return "";
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(std::move(path)), partial_path_(path_.string() + ".partial") {
  static_assert(std::endian::native == std::endian::little, "the format is little-endian");
  OrderedJson header = OrderedJson::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  size_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    const TensorView view{nullptr, tensor.dtype, tensor.shape};
    const size_t end = offset + view.num_bytes();
    header[tensor.name] = {{"dtype", safetensors_name_of(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, end}}};
    slots_.push_back({offset, end});
    offset = end;
  }
  std::string text = header.dump();
  text.resize(round_up<size_t>(text.size(), 8), ' ');
  const uint64_t length = text.size();
  for (Slot& slot : slots_) {
    slot.offset += sizeof(length) + text.size();
    slot.end += sizeof(length) + text.size();
  }
  file_.open(partial_path_, std::ios::binary | std::ios::trunc);
  if (!file_) {
    throw InputError(str(partial_path_.string(), ": cannot create: ", std::strerror(errno),
                         ". Check the folder and its permissions."));
  }
  file_.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file_.write(text.data(), static_cast<std::streamsize>(text.size()));
}

SafetensorsWriter::~SafetensorsWriter() {
  if (is_finished_) return;
  file_.close();
  std::error_code ignored;  // nothing to do about it here, and the file is marked as partial
  std::filesystem::remove(partial_path_, ignored);
}

void SafetensorsWriter::append(size_t tensor, std::span<const std::byte> bytes) {
  Slot& slot = slots_.at(tensor);
  HALLEY_CHECK(bytes.size() <= slot.end - slot.offset, bytes.size(), slot.offset, slot.end);
  file_.seekp(static_cast<std::streamoff>(slot.offset));
  file_.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  slot.offset += bytes.size();
}

void SafetensorsWriter::finish() {
  for (const Slot& slot : slots_) HALLEY_CHECK(slot.offset == slot.end, slot.offset, slot.end);
  file_.close();
  std::error_code error;
  if (file_) std::filesystem::rename(partial_path_, path_, error);
  if (!file_ || error) {
    throw DeviceError(str(path_.string(), ": cannot write: ",
                          error ? error.message() : std::string(std::strerror(errno)),
                          ". Is the disk full?"));
  }
  is_finished_ = true;
}

}  // namespace halley
