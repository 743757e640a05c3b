// Finds a model's template and special tokens in its directory.
#include <algorithm>
#include <filesystem>
#include <system_error>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/chat_template/chat_template.h"
#include "halley/checkpoint/gguf/gguf_file.h"
#include "halley/checkpoint/gguf/model_files.h"

namespace halley {
namespace {

constexpr size_t kConfigBytesMax = 64 << 20;

bool is_inside(const std::filesystem::path& path, const std::filesystem::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

// Both paths are canonical. Hugging Face's cache has the bytes of all revisions in one
// folder: snapshots/REVISION/FILE links to ../../blobs/HASH. A revision's subfolder may be a model.
bool is_of_model(const std::filesystem::path& target, const std::filesystem::path& folder) {
  if (is_inside(target, folder)) return true;
  for (auto revision = folder; revision.has_relative_path(); revision = revision.parent_path()) {
    const std::filesystem::path snapshots = revision.parent_path();
    if (snapshots.filename() == "snapshots" &&
        is_inside(target, snapshots.parent_path() / "blobs")) {
      return true;
    }
  }
  return false;
}

// Also for a link to nothing: that is a damaged download, and no model without a template.
bool has_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::symlink_status(path, error));
}

// The text of a file whose contents clients see: as the beginning of every prompt. The folder may
// be somebody else's work, so that a link to any file of this machine is not followed.
std::string read_model_text(const std::filesystem::path& path, size_t num_bytes_max) {
  std::error_code error;
  if (std::filesystem::is_symlink(path, error)) {
    const auto target = std::filesystem::canonical(path, error);
    if (error) {
      throw InputError(str(path.string(), ": expected a file, got a link that leads nowhere: ",
                           error.message(), ". Download the file again, or remove the link."));
    }
    if (!is_of_model(target, std::filesystem::canonical(path.parent_path(), error))) {
      throw InputError(str(path.string(),
                           ": expected a file of the model's folder, got a link out of it. Copy "
                           "the file into the folder if clients may see what is in it."));
    }
  }
  return read_text_file(path, num_bytes_max);
}

// tokenizer_config.json, or an empty object where the model has none.
Json read_tokenizer_config(const std::filesystem::path& path) {
  const std::filesystem::path model = path.parent_path();
  const bool is_gguf = is_gguf_file(model);
  if (!is_gguf && !has_file(path)) return Json::object();
  const std::string text = is_gguf ? read_model_file(model, path.filename(), kConfigBytesMax)
                                   : read_model_text(path, kConfigBytesMax);
  Json config = parse_json(text, path.string());
  if (!config.is_object()) {
    throw InputError(str(path.string(), ": expected an object, got ", type_name_of(config), "."));
  }
  return config;
}

const std::string& string_member(const Json& object, const char* name, const std::string& where) {
  const auto it = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || it == object.end() || !it->is_string()) {
    throw InputError(str(where, ": expected an object with the string \"", name, "\", got ",
                         object.is_object() ? "none" : type_name_of(object), "."));
  }
  return it->get_ref<const std::string&>();
}

// One of the named templates of a list.
std::string choose_template(const Json& list, bool has_tools, const std::string& where) {
  const std::string* chosen = nullptr;
  for (const Json& entry : list) {
    const std::string& name = string_member(entry, "name", where);
    const std::string& source = string_member(entry, "template", where);
    const bool is_for_tools = has_tools && name == "tool_use";
    if (is_for_tools || (name == "default" && chosen == nullptr)) chosen = &source;
    if (is_for_tools) break;
  }
  if (chosen == nullptr) {
    throw InputError(str(where, ": expected a template with the name \"default\", got ",
                         list.size(), " others."));
  }
  return *chosen;
}

}  // namespace

std::optional<std::string> load_chat_template_source(const std::filesystem::path& model_dir,
                                                     bool has_tools) {
  const std::filesystem::path file = model_dir / "chat_template.jinja";
  if (has_file(file)) {
    return read_model_text(file, TemplateLimits{}.source_bytes_max);
  }
  const std::filesystem::path config_path = model_dir / "tokenizer_config.json";
  const Json config = read_tokenizer_config(config_path);
  const auto it = config.find("chat_template");
  if (it == config.end() || it->is_null()) return std::nullopt;
  if (it->is_string()) return it->get<std::string>();
  const std::string where = str(config_path.string(), ": chat_template");
  if (it->is_array()) return choose_template(*it, has_tools, where);
  throw InputError(
      str(where, ": expected a string or a list of named templates, got ", type_name_of(*it), "."));
}

OrderedJson load_special_token_context(const std::filesystem::path& model_dir) {
  const std::filesystem::path path = model_dir / "tokenizer_config.json";
  const Json config = read_tokenizer_config(path);
  OrderedJson context = OrderedJson::object();
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const auto it = config.find(name);
    if (it == config.end() || it->is_null()) continue;
    const std::string where = str(path.string(), ": ", name);
    context[name] = it->is_string() ? it->get<std::string>() : string_member(*it, "content", where);
  }
  return context;
}

}  // namespace halley
