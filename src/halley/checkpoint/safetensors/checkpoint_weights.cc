#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/checkpoint/safetensors/sorted_tensors.h"
#include "halley/checkpoint/safetensors/weight_index.h"

namespace halley {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr size_t kIndexBytesMax = 100'000'000;  // as for a header, which says more of each tensor

// The tensors of one or more mapped files.
class CheckpointWeights : public TensorSource {
 public:
  explicit CheckpointWeights(std::string description) : description_(std::move(description)) {}

  // Takes over the file and its tensors. Call finish() behind the last one.
  void add(MappedFile file, SafetensorsHeader header) {
    const std::byte* data = file.bytes().data() + header.data_start;
    for (auto& entry : header.entries) {
      located_.emplace_back(std::move(entry.info), data + entry.offset);
    }
    files_.push_back(std::move(file));
  }

  // Names must be unique by now.
  void finish() {
    std::sort(located_.begin(), located_.end(),
              [](const auto& a, const auto& b) { return a.first.name < b.first.name; });
    infos_.reserve(located_.size());
    data_.reserve(located_.size());
    for (auto& [info, data] : located_) {
      HALLEY_CHECK(infos_.empty() || infos_.back().name < info.name, info.name);
      infos_.push_back(std::move(info));
      data_.push_back(data);
    }
    located_ = {};
  }

  std::string description() const override { return description_; }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }

  const TensorInfo* find(std::string_view name) const override { return find_sorted(infos_, name); }

  TensorView view(const TensorInfo& info) const override {
    const TensorInfo* own = find(info.name);
    HALLEY_CHECK(own != nullptr, info.name);
    return {data_[static_cast<size_t>(own - infos_.data())], own->dtype, own->shape};
  }

  void release(const TensorInfo& info) const override {
    release_pages({view(info).data, info.num_bytes});
  }

 private:
  std::string description_;
  std::vector<MappedFile> files_;
  std::vector<std::pair<TensorInfo, const std::byte*>> located_;  // until finish()
  std::vector<TensorInfo> infos_;                                 // sorted by name
  std::vector<const std::byte*> data_;                            // of the info at the same index
};

// A regular file or a link to one, as the Hugging Face cache has them.
bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::unique_ptr<TensorSource> open_single(const std::string& description, const fs::path& path) {
  auto weights = std::make_unique<CheckpointWeights>(description);
  MappedFile file = MappedFile::open(path);
  SafetensorsHeader header = parse_safetensors(file.bytes(), path.string());
  weights->add(std::move(file), std::move(header));
  weights->finish();
  return weights;
}

// One shard's tensors must be those that the index names for it, no more and no less.
void check_shard(const SafetensorsHeader& header, const std::set<std::string_view>& expected,
                 const std::map<std::string, std::string>& shards, const std::string& shard_path) {
  for (const auto& entry : header.entries) {
    if (expected.count(entry.info.name) != 0) continue;
    const auto it = shards.find(entry.info.name);
    throw CheckpointError(
        str(shard_path, ": tensor ", halley::quote(entry.info.name),
            ": expected only tensors that ", kIndexName, " names for this file, got one that it ",
            it == shards.end() ? "does not name" : str("names for ", halley::quote(it->second)),
            ". The files are of different checkpoints: download the model again."));
  }
  if (header.entries.size() == expected.size()) return;
  std::set<std::string_view> found;
  for (const auto& entry : header.entries) found.insert(entry.info.name);
  for (const std::string_view name : expected) {
    if (found.count(name) != 0) continue;
    throw CheckpointError(str(shard_path, ": expected tensor ", halley::quote(name), ", which ",
                              kIndexName,
                              " names for this file, got no such tensor. The files are of "
                              "different checkpoints: download the model again."));
  }
}

std::unique_ptr<TensorSource> open_shards(const fs::path& model_dir, const fs::path& index_path) {
  const std::map<std::string, std::string> shards =
      parse_weight_index(read_text_file(index_path, kIndexBytesMax), index_path.string());
  std::map<std::string_view, std::set<std::string_view>> tensors_of;
  for (const auto& [tensor, shard] : shards) tensors_of[shard].insert(tensor);

  auto weights = std::make_unique<CheckpointWeights>(model_dir.string());
  for (const auto& [shard, expected] : tensors_of) {
    const fs::path path = model_dir / shard;
    if (!is_file(path)) {
      throw CheckpointError(str(index_path.string(), ": field 'weight_map': expected a file ",
                                halley::quote(shard),
                                " in the same directory, got none. The download is "
                                "not complete: download the model again."));
    }
    MappedFile file = MappedFile::open(path);
    SafetensorsHeader header = parse_safetensors(file.bytes(), path.string());
    check_shard(header, expected, shards, path.string());
    weights->add(std::move(file), std::move(header));
  }
  weights->finish();
  return weights;
}

// Names of the directory's entries, sorted, so that messages do not depend on its order.
std::vector<std::string> list_names(const fs::path& model_dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(model_dir, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) {
    throw CheckpointError(str(model_dir.string(), ": expected a model's directory, got an error: ",
                              error.message(), "."));
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_other_weight_file(std::string_view name) {
  for (const char* suffix : {".bin", ".gguf", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".npz"}) {
    if (name.ends_with(suffix)) return true;
  }
  return false;
}

// "model-00002-of-00003.safetensors", which is of no use without its index.
bool is_one_of_several_shards(std::string_view name) {
  name.remove_suffix(std::string_view(".safetensors").size());
  const size_t of = name.rfind("-of-");
  if (of == std::string_view::npos) return false;
  const std::string_view count = name.substr(of + 4);
  const size_t digits = count.find_first_not_of("0123456789");
  return !count.empty() && digits == std::string_view::npos &&
         count.substr(std::min(count.find_first_not_of('0'), count.size())) != "1";
}

// Neither of the standard names is there: one file of another name will do.
std::unique_ptr<TensorSource> open_other(const fs::path& model_dir) {
  const std::vector<std::string> names = list_names(model_dir);
  std::vector<std::string> candidates;
  const std::string* other = nullptr;
  for (const std::string& name : names) {
    if (name.ends_with(".safetensors") && is_file(model_dir / name)) candidates.push_back(name);
    if (other == nullptr && is_other_weight_file(name)) other = &name;
  }
  if (candidates.size() == 1 && candidates[0].starts_with("adapter_model")) {
    throw UnsupportedError(str(
        model_dir.string(), ": expected a model's weights, got only ", halley::quote(candidates[0]),
        ", an adapter. Load its base model, and the adapter with --lora-modules."));
  }
  if (candidates.size() == 1 && !is_one_of_several_shards(candidates[0])) {
    return open_single(model_dir.string(), model_dir / candidates[0]);
  }
  if (!candidates.empty()) {
    throw CheckpointError(str(model_dir.string(), ": expected ", kSingleName, " or ", kIndexName,
                              ", got ", candidates.size(), " other .safetensors files (",
                              halley::quote(candidates[0]), " first) and no index. Download ",
                              kIndexName, " too."));
  }
  if (other != nullptr) {
    throw UnsupportedError(str(model_dir.string(), ": expected ", kSingleName, " or ", kIndexName,
                               ", got ", halley::quote(*other),
                               ". Only safetensors weights are read: "
                               "convert the checkpoint to safetensors."));
  }
  throw CheckpointError(str(model_dir.string(), ": expected ", kSingleName, " or ", kIndexName,
                            ", got no weight file. Download the model's weights."));
}

}  // namespace

std::unique_ptr<TensorSource> open_safetensors_file(const fs::path& path) {
  return open_single(path.string(), path);
}

std::unique_ptr<TensorSource> open_checkpoint_weights(const fs::path& model_dir) {
  if (is_file(model_dir / kSingleName)) {
    return open_single(model_dir.string(), model_dir / kSingleName);
  }
  if (is_file(model_dir / kIndexName)) return open_shards(model_dir, model_dir / kIndexName);
  return open_other(model_dir);
}

}  // namespace halley
