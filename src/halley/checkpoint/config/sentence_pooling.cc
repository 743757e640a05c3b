#include "halley/checkpoint/config/sentence_pooling.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/gguf/model_files.h"
#include "halley/json/json.h"

namespace halley {
namespace {

constexpr const char* kModules = "modules.json";
constexpr size_t kFileBytesMax = size_t{1} << 20;
constexpr size_t kModulesMax = 16;
constexpr size_t kFolderBytesMax = 64;

using Mode = SentencePooling::Mode;

std::string text_member(const Json& module, const char* name, const std::string& where) {
  const auto it = module.is_object() ? module.find(name) : module.end();
  if (it == module.end() || !it->is_string()) {
    throw InputError(str(where, ": expected modules with a text in ", quote(name), "."));
  }
  return it->get<std::string>();
}

// The folder stands in an untrusted file, and must not lead out of the model's.
void check_folder(const std::string& folder, const std::string& where) {
  const bool is_plain = !folder.empty() && folder.size() <= kFolderBytesMax &&
                        std::all_of(folder.begin(), folder.end(), [](char c) {
                          return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                 (c >= '0' && c <= '9') || c == '_' || c == '-';
                        });
  if (is_plain) return;
  throw InputError(str(where,
                       ": expected a folder's name of letters, digits, _ and - as the path "
                       "of the Pooling module, got ",
                       quote(folder), "."));
}

// The flags of the module; newer files may have one name instead of them.
Mode read_mode(const std::filesystem::path& model_dir, const std::string& folder) {
  constexpr auto kNames = std::to_array<std::pair<const char*, std::optional<Mode>>>(
      {{"lasttoken", Mode::kLastToken},
       {"mean_tokens", Mode::kMeanTokens},
       {"cls_token", std::nullopt},
       {"max_tokens", std::nullopt},
       {"mean_sqrt_len_tokens", std::nullopt},
       {"weightedmean_tokens", std::nullopt}});
  const std::string name = folder + "/config.json";
  const std::string where = (model_dir / name).string();
  const HfConfig config = HfConfig::parse(read_model_file(model_dir, name, kFileBytesMax), where);
  std::optional<Mode> mode;
  int num_set = 0;
  for (const auto& [suffix, its_mode] : kNames) {
    const std::string field = str("pooling_mode_", suffix);
    if (!config.boolean_or(field, false)) continue;
    ++num_set;
    if (!its_mode) {
      throw UnsupportedError(str(where,
                                 ": expected pooling_mode_lasttoken or "
                                 "pooling_mode_mean_tokens to be true, got ",
                                 field, "."));
    }
    mode = its_mode;
  }
  if (num_set == 1) return *mode;
  throw UnsupportedError(str(where,
                             ": expected one of pooling_mode_lasttoken and "
                             "pooling_mode_mean_tokens to be true, got ",
                             num_set, " kinds of pooling."));
}

}  // namespace

std::optional<SentencePooling> load_sentence_pooling(const std::filesystem::path& model_dir) {
  if (!has_model_file(model_dir, kModules)) return std::nullopt;
  const std::string where = (model_dir / kModules).string();
  const Json modules = parse_json(read_model_file(model_dir, kModules, kFileBytesMax), where);
  if (!modules.is_array() || modules.size() > kModulesMax) {
    throw InputError(str(where, ": expected a list of at most ", kModulesMax, " modules."));
  }
  SentencePooling pooling;
  bool has_pooling = false;
  for (const Json& module : modules) {
    const std::string type = text_member(module, "type", where);
    if (type.ends_with(".Pooling")) {
      const std::string folder = text_member(module, "path", where);
      check_folder(folder, where);
      pooling.mode = read_mode(model_dir, folder);
      has_pooling = true;
    } else if (type.ends_with(".Normalize")) {
      pooling.normalizes = true;
    } else if (!type.ends_with(".Transformer")) {
      throw UnsupportedError(str(
          where, ": expected modules Transformer, Pooling and Normalize, got ", quote(type), "."));
    }
  }
  if (!has_pooling) return std::nullopt;
  return pooling;
}

}  // namespace halley
