#include "halley/checkpoint/tokenizer/spm_settings.h"

#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/gguf/model_files.h"
#include "halley/checkpoint/tokenizer/component.h"
#include "halley/checkpoint/tokenizer/token_table.h"
#include "halley/json/json.h"

namespace halley {
namespace {

constexpr size_t kFileBytesMax = 64u << 20;
constexpr const char* kTokenMembers[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                         "sep_token", "cls_token", "mask_token"};

std::optional<Json> read_json(const std::filesystem::path& path) {
  const std::filesystem::path model_dir = path.parent_path();
  const std::string name = path.filename();
  if (!has_model_file(model_dir, name)) return std::nullopt;
  return parse_json(read_model_file(model_dir, name, kFileBytesMax), path.string());
}

// "<s>" or {"content": "<s>", "lstrip": false, ...}.
AddedToken parse_token(const Json& value, const std::string& where) {
  AddedToken token;
  token.normalized = false;
  if (value.is_string()) {
    token.content = value.get<std::string>();
    return token;
  }
  const Component config(value, where);
  token.content = config.text("content");
  token.single_word = config.boolean_or("single_word", false);
  token.lstrip = config.boolean_or("lstrip", false);
  token.rstrip = config.boolean_or("rstrip", false);
  token.special = config.boolean_or("special", false);
  return token;
}

void read_special_tokens(const Component& config, SpmSettings& settings) {
  for (const char* member : kTokenMembers) {
    const Json* value = config.find(member);
    if (value == nullptr) continue;
    AddedToken token = parse_token(*value, config.where(member));
    token.special = true;
    if (member == kTokenMembers[0]) settings.bos_token = token.content;
    if (member == kTokenMembers[1]) settings.eos_token = token.content;
    settings.special_tokens.push_back(std::move(token));
  }
  if (config.find("additional_special_tokens") == nullptr) return;
  for (const Json& value : config.array("additional_special_tokens")) {
    AddedToken token = parse_token(value, config.where("additional_special_tokens"));
    token.special = true;
    settings.special_tokens.push_back(std::move(token));
  }
}

void read_added_tokens_decoder(const Component& config, SpmSettings& settings) {
  if (config.find("added_tokens_decoder") == nullptr) return;
  const Component list(config.member("added_tokens_decoder"), config.where("added_tokens_decoder"));
  for (auto entry = list.json().begin(); entry != list.json().end(); ++entry) {
    const std::string& key = entry.key();
    AddedToken token = parse_token(*entry, str(list.where(), "[", quote(key), "]"));
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    const bool is_id = error == std::errc() && end == key.data() + key.size() && token.id >= 0 &&
                       token.id < kNumIdsMax;
    if (!is_id) {
      throw InputError(str(list.where(), ": expected ids from 0 to ", kNumIdsMax - 1,
                           " as keys, got ", quote(key), "."));
    }
    settings.added_tokens.push_back(std::move(token));
  }
}

// {"<tool>": 32000}
void read_added_tokens(const Json& file, const std::string& where, SpmSettings& settings) {
  const Component config(file, where);
  for (auto entry = file.begin(); entry != file.end(); ++entry) {
    if (!entry->is_number_unsigned() || entry->get<uint64_t>() >= kNumIdsMax) {
      throw InputError(str(where, ": expected an id from 0 to ", kNumIdsMax - 1, " for ",
                           quote(entry.key()), ", got ", quote(entry->dump(), 40), "."));
    }
    AddedToken token;
    token.content = entry.key();
    token.id = entry->get<int32_t>();
    token.normalized = false;
    settings.added_tokens.push_back(std::move(token));
  }
}

}  // namespace

SpmSettings read_spm_settings(const std::filesystem::path& model_dir) {
  SpmSettings settings;
  // Later ones override: tokenizer_config.json is the one that Hugging Face writes last.
  const std::filesystem::path added_path = model_dir / "added_tokens.json";
  if (const auto file = read_json(added_path)) {
    read_added_tokens(*file, added_path.string(), settings);
  }
  const std::filesystem::path map_path = model_dir / "special_tokens_map.json";
  if (const auto file = read_json(map_path)) {
    read_special_tokens(Component(*file, map_path.string()), settings);
  }
  const std::filesystem::path config_path = model_dir / "tokenizer_config.json";
  if (const auto file = read_json(config_path)) {
    const Component config(*file, config_path.string());
    settings.add_bos_token = config.boolean_or("add_bos_token", settings.add_bos_token);
    settings.add_eos_token = config.boolean_or("add_eos_token", settings.add_eos_token);
    settings.legacy = config.boolean_or("legacy", settings.legacy);
    read_special_tokens(config, settings);
    read_added_tokens_decoder(config, settings);
  }
  return settings;
}

}  // namespace halley
