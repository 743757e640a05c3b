#include "halley/quant/methods/output_folder.h"

#include <cstdio>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/checkpoint/safetensors/safetensors_writer.h"

namespace halley {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFingerprintFile = "job.txt";
constexpr const char* kShardFile = "model.safetensors";
constexpr const char* kNoteFile = "note.json";
constexpr size_t kTextBytesMax = size_t{1} << 26;
/// Checkpoints up to this size become one file.
constexpr size_t kOneFileBytesMax = size_t{4} << 30;

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return;
  throw DeviceError(str(path.string(), ": cannot write: expected room for ", text.size(),
                        " bytes, got a failure. Check the disk and its permissions."));
}

void check(const fs::path& path, const std::error_code& error, const char* action) {
  if (!error) return;
  throw DeviceError(
      str(path.string(), ": cannot ", action, ": ", error.message(), ". Check the disk."));
}

void write_tensors(const fs::path& path, const std::vector<CheckpointTensor>& tensors) {
  std::vector<TensorInfo> infos;
  for (const CheckpointTensor& tensor : tensors) infos.push_back(tensor.info);
  SafetensorsWriter writer(path, infos, {{"format", "pt"}});
  for (size_t i = 0; i < tensors.size(); ++i) writer.append(i, tensors[i].data);
  writer.finish();
}

bool is_copied(const fs::path& path) {
  const std::string name = path.filename().string();
  const bool is_weight = name.ends_with(".safetensors") || name.ends_with(".bin") ||
                         name.ends_with(".safetensors.index.json") || name.ends_with(".pth") ||
                         name.ends_with(".gguf");
  return !is_weight && name != "config.json" && name != "golden.json" && name.ends_with(".json");
}

void copy_other_files(const fs::path& model_dir, const fs::path& out) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(model_dir)) {
    const std::string name = entry.path().filename().string();
    const bool is_text = name == "tokenizer.model" || name == "merges.txt" || name == "LICENSE" ||
                         name.ends_with(".jinja");
    if (!entry.is_regular_file() || (!is_copied(entry.path()) && !is_text)) continue;
    fs::copy_file(entry.path(), out / name, fs::copy_options::overwrite_existing, error);
    check(out / name, error, "copy");
  }
}

/// All shards in one file.
void join_shards(const std::vector<fs::path>& folders, const fs::path& out) {
  std::vector<std::unique_ptr<TensorSource>> sources;
  std::vector<TensorInfo> infos;
  for (const fs::path& folder : folders) {
    sources.push_back(open_checkpoint_weights(folder));
    for (const TensorInfo& info : sources.back()->tensors()) infos.push_back(info);
  }
  SafetensorsWriter writer(out / kShardFile, infos, {{"format", "pt"}});
  size_t index = 0;
  for (const auto& source : sources) {
    for (const TensorInfo& info : source->tensors()) {
      const TensorView view = source->view(info);
      writer.append(index++, {view.data, view.num_bytes()});
      source->release(info);
    }
  }
  writer.finish();
}

/// Each shard a file of its own, and the index that names them.
void number_shards(const std::vector<fs::path>& folders, const fs::path& out, size_t num_bytes) {
  OrderedJson map = OrderedJson::object();
  for (size_t i = 0; i < folders.size(); ++i) {
    char name[64];
    std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", i + 1, folders.size());
    for (const TensorInfo& info : open_checkpoint_weights(folders[i])->tensors()) {
      map[info.name] = name;
    }
    std::error_code error;
    fs::rename(folders[i] / kShardFile, out / name, error);
    check(out / name, error, "rename");
  }
  const OrderedJson index = {{"metadata", {{"total_size", num_bytes}}}, {"weight_map", map}};
  write_text(out / "model.safetensors.index.json", index.dump(1));
}

}  // namespace

OutputFolder::OutputFolder(fs::path path, const std::string& fingerprint)
    : path_(std::move(path)), partial_(path_.string() + ".partial") {
  if (fs::exists(path_)) {
    throw InputError(str("--out ", path_.string(),
                         ": expected a folder that does not exist, got one that does. Remove it "
                         "or name another."));
  }
  const fs::path job = partial_ / kFingerprintFile;
  if (fs::exists(job)) {
    if (read_text_file(job, kTextBytesMax) == fingerprint) return;
    throw InputError(str(partial_.string(),
                         ": expected the unfinished work of the same command, got that of another. "
                         "Remove the folder to begin anew."));
  }
  std::error_code error;
  fs::create_directories(partial_, error);
  if (error) {
    throw InputError(str("--out ", path_.string(), ": cannot create ", partial_.string(), ": ",
                         error.message(), ". Check the path and its permissions."));
  }
  write_text(job, fingerprint);
}

fs::path OutputFolder::shard_path(const std::string& name) const { return partial_ / name; }

std::optional<Json> OutputFolder::find_shard(const std::string& name) const {
  const fs::path note = shard_path(name) / kNoteFile;
  if (!fs::exists(note)) return std::nullopt;
  return parse_json(read_text_file(note, kTextBytesMax), note.string());
}

void OutputFolder::write_shard(const std::string& name,
                               const std::vector<CheckpointTensor>& tensors,
                               const OrderedJson& note) {
  const fs::path folder = shard_path(name);
  std::error_code error;
  fs::remove_all(folder, error);
  fs::create_directories(folder, error);
  check(folder, error, "create");
  write_tensors(folder / kShardFile, tensors);
  // The note is complete or not there: it is what makes the shard count.
  const fs::path written = folder / (std::string(kNoteFile) + ".partial");
  write_text(written, note.dump(1));
  fs::rename(written, folder / kNoteFile, error);
  check(folder / kNoteFile, error, "rename");
}

double OutputFolder::finish(const std::vector<std::string>& names, const OrderedJson& config,
                            const fs::path& model_dir) {
  std::vector<fs::path> folders;
  size_t num_bytes = 0;
  for (const std::string& name : names) {
    folders.push_back(shard_path(name));
    num_bytes += fs::file_size(folders.back() / kShardFile);
  }
  if (num_bytes <= kOneFileBytesMax) {
    join_shards(folders, partial_);
  } else {
    number_shards(folders, partial_, num_bytes);
  }
  copy_other_files(model_dir, partial_);
  write_text(partial_ / "config.json", config.dump(2) + "\n");
  std::error_code error;
  for (const fs::path& folder : folders) fs::remove_all(folder, error);
  fs::remove(partial_ / kFingerprintFile, error);
  fs::rename(partial_, path_, error);
  check(path_, error, "rename");
  return static_cast<double>(num_bytes);
}

}  // namespace halley
