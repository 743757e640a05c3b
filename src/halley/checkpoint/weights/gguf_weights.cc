#include "halley/checkpoint/weights/gguf_weights.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/gguf/architecture.h"
#include "halley/checkpoint/gguf/gguf_file.h"
#include "halley/checkpoint/gguf/mapped_gguf.h"
#include "halley/checkpoint/safetensors/sorted_tensors.h"

namespace halley {
namespace {

/// A tensor's bytes in the file, and what is done to them.
struct Located {
  TensorInfo info;
  const std::byte* data = nullptr;
  GgufRewrite rewrite = GgufRewrite::kNone;
  int64_t num_heads = 0;
};

class GgufWeights : public TensorSource {
 public:
  explicit GgufWeights(const std::filesystem::path& path)
      : description_(path.string()), file_(path) {
    for (GgufNamedTensor& named : name_gguf_tensors(file_.header())) {
      located_.push_back(locate(named));
    }
    std::sort(located_.begin(), located_.end(),
              [](const Located& a, const Located& b) { return a.info.name < b.info.name; });
    for (const Located& located : located_) {
      if (!infos_.empty() && infos_.back().name == located.info.name) {
        throw CheckpointError(str(description_, ": tensor ", quote(located.info.name),
                                  ": expected it once, got it under two names. Convert the model "
                                  "again."));
      }
      infos_.push_back(located.info);
    }
    rewritten_.resize(located_.size());
  }

  std::string description() const override { return description_; }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }

  const TensorInfo* find(std::string_view name) const override { return find_sorted(infos_, name); }

  TensorView view(const TensorInfo& info) const override {
    const size_t index = index_of(info);
    const Located& located = located_[index];
    const std::byte* data = located.data;
    if (located.rewrite != GgufRewrite::kNone) {
      const std::lock_guard lock(mutex_);
      std::vector<std::byte>& own = rewritten_[index];
      if (own.empty()) own = rewrite(located);
      data = own.data();
    }
    return {data, located.info.dtype, located.info.shape};
  }

  void release(const TensorInfo& info) const override {
    release_pages({located_[index_of(info)].data, info.num_bytes});
  }

 private:
  static Located locate(GgufNamedTensor& named) {
    const GgufTensor& tensor = *named.tensor;
    Located located = {.info = {.name = std::move(named.name), .shape = tensor.shape},
                       .data = tensor.data,
                       .rewrite = named.rewrite,
                       .num_heads = named.num_heads};
    TensorInfo& info = located.info;
    info.num_bytes = tensor.num_bytes;
    if (named.expert >= 0) {
      info.num_bytes /= static_cast<size_t>(tensor.shape[0]);
      info.shape.erase(info.shape.begin());
      located.data += static_cast<size_t>(named.expert) * info.num_bytes;
    }
    info.dtype = tensor.type->dense.value_or(DType::kU8);
    if (!tensor.type->dense) {
      const int64_t blocks = info.shape.back() / tensor.type->block_values;
      info.shape.back() = blocks * static_cast<int64_t>(tensor.type->block_bytes);
    }
    return located;
  }

  size_t index_of(const TensorInfo& info) const {
    const TensorInfo* own = find(info.name);
    HALLEY_CHECK(own != nullptr, info.name);
    return static_cast<size_t>(own - infos_.data());
  }

  static std::vector<std::byte> rewrite(const Located& located) {
    std::vector<std::byte> bytes(located.info.num_bytes);
    if (located.rewrite == GgufRewrite::kUnpairRows) {
      unpair_rows(located, bytes.data());
    } else {
      subtract_one(located, bytes.data());
    }
    return bytes;
  }

  static void unpair_rows(const Located& located, std::byte* out) {
    const int64_t num_rows = located.info.shape[0], head_rows = num_rows / located.num_heads;
    const size_t row_bytes = located.info.num_bytes / static_cast<size_t>(num_rows);
    for (int64_t row = 0; row < num_rows; ++row) {
      const int64_t head = row / head_rows, i = row % head_rows, half = head_rows / 2;
      const int64_t from = head * head_rows + 2 * (i % half) + i / half;
      std::memcpy(out + static_cast<size_t>(row) * row_bytes,
                  located.data + static_cast<size_t>(from) * row_bytes, row_bytes);
    }
  }

  static void subtract_one(const Located& located, std::byte* out) {
    for (size_t i = 0; i < located.info.num_bytes; i += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, located.data + i, sizeof(value));
      value -= 1;
      std::memcpy(out + i, &value, sizeof(value));
    }
  }

  std::string description_;
  MappedGguf file_;
  std::vector<Located> located_;   // sorted by name
  std::vector<TensorInfo> infos_;  // of the tensor at the same index
  mutable std::mutex mutex_;
  mutable std::vector<std::vector<std::byte>> rewritten_;  // the same; empty until it is viewed
};

}  // namespace

std::unique_ptr<TensorSource> open_gguf_weights(const std::filesystem::path& path) {
  return std::make_unique<GgufWeights>(path);
}

}  // namespace halley
