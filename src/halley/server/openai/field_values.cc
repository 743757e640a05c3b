#include "halley/server/openai/field_values.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "halley/base/check.h"
#include "halley/base/str.h"
#include "halley/sampling/base/sampling_fields.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/member_table.h"

namespace halley {
namespace {

constexpr size_t kPromptsMax = 1024;
constexpr size_t kStopTokenIdsMax = 128;
constexpr size_t kLogitBiasesMax = 1024;
constexpr size_t kBadWordsMax = 128;
constexpr size_t kBadWordBytesMax = 256;
constexpr double kLogitBiasMax = 100;
constexpr size_t kTemplateKwargsMax = 64;
constexpr double kMillisecondsMax = 1000 * Slo::kSecondsMax;

int32_t token_id_of(const OrderedJson& value, const std::string& path, const RequestRules& rules) {
  if (value.is_number_integer()) {
    const bool is_below_int63 = !value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX;
    const int64_t id = is_below_int63 ? value.get<int64_t>() : INT64_MAX;
    if (id >= 0 && id < rules.vocab_size) return static_cast<int32_t>(id);
  }
  throw invalid_field(path,
                      str(path, ": expected a token id of 0 to ", rules.vocab_size - 1, ", got ",
                          value.is_number() ? value.dump() : kind_in_words(value), "."));
}

std::vector<int32_t> token_ids_of(const OrderedJson& list, const std::string& path,
                                  const RequestRules& rules) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    // The path is built only for an error: a prompt may have millions of ids.
    const OrderedJson& value = list[i];
    if (value.is_number_unsigned() &&
        value.get<uint64_t>() < static_cast<uint64_t>(rules.vocab_size)) {
      ids.push_back(static_cast<int32_t>(value.get<uint64_t>()));
    } else {
      ids.push_back(token_id_of(value, str(path, "[", i, "]"), rules));
    }
  }
  return ids;
}

ApiPrompt one_prompt(const OrderedJson& value, const std::string& path, const RequestRules& rules) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) {
    throw invalid_field(path, str(path, ": expected a string or a list of token ids, got ",
                                  kind_in_words(value), "."));
  }
  if (value.empty()) {
    throw invalid_field(path, str(path, ": expected at least one token id, got none."));
  }
  return token_ids_of(value, path, rules);
}

std::vector<std::string> strings_of(const FieldValue& value) {
  if (value.json.is_string()) return {value.json.get<std::string>()};
  std::vector<std::string> strings;
  if (!value.json.is_array()) {
    throw invalid_field(value.name,
                        str(value.name, ": expected a string or a list of strings, got ",
                            kind_in_words(value.json), "."));
  }
  for (size_t i = 0; i < value.json.size(); ++i) {
    const OrderedJson& element = value.json[i];
    if (!element.is_string()) {
      const std::string path = str(value.name, "[", i, "]");
      throw invalid_field(path,
                          str(path, ": expected a string, got ", kind_in_words(element), "."));
    }
    strings.push_back(element.get<std::string>());
  }
  return strings;
}

// A limit in milliseconds, in seconds.
std::optional<double> limit_member(const FieldValue& value, const char* name) {
  const auto member = value.json.find(name);
  if (member == value.json.end() || member->is_null()) return std::nullopt;
  const double milliseconds = member->is_number() ? member->get<double>() : 0;
  if (milliseconds > 0 && milliseconds <= kMillisecondsMax) return milliseconds / 1000;
  const std::string where = str(value.name, ".", name);
  throw invalid_field(where,
                      str(where, ": expected milliseconds above 0 and at most ",
                          static_cast<int64_t>(kMillisecondsMax), ", got ",
                          member->is_number() ? member->dump() : kind_in_words(*member), "."));
}

void check_count(const char* name, size_t count, size_t max) {
  if (count <= max) return;
  throw invalid_field(name, str(name, ": expected at most ", max, " entries, got ", count, "."));
}

}  // namespace

void expect_object(const OrderedJson& value, const std::string& path) {
  if (value.is_object()) return;
  throw invalid_field(path, str(path, ": expected an object, got ", kind_in_words(value), "."));
}

std::string string_member(const OrderedJson& object, const char* name, const std::string& path,
                          size_t num_bytes_max) {
  const std::string where = str(path, ".", name);
  const auto member = object.find(name);
  if (member == object.end()) {
    throw invalid_field(where, str(where, ": expected a string, got nothing."));
  }
  if (!member->is_string()) {
    throw invalid_field(where,
                        str(where, ": expected a string, got ", kind_in_words(*member), "."));
  }
  auto text = member->get<std::string>();
  if (text.size() > num_bytes_max) {
    throw invalid_field(
        where, str(where, ": expected at most ", num_bytes_max, " bytes, got ", text.size(), "."));
  }
  return text;
}

const OrderedJson& object_member(const OrderedJson& object, const char* name,
                                 const std::string& path) {
  const std::string where = str(path, ".", name);
  const auto member = object.find(name);
  if (member == object.end()) {
    throw invalid_field(where, str(where, ": expected an object, got nothing."));
  }
  expect_object(*member, where);
  return *member;
}

bool bool_member(const OrderedJson& object, const char* name, const std::string& path) {
  const auto member = object.find(name);
  if (member == object.end() || member->is_null()) return false;
  if (member->is_boolean()) return member->get<bool>();
  const std::string where = str(path, ".", name);
  throw invalid_field(where,
                      str(where, ": expected true or false, got ", kind_in_words(*member), "."));
}

void check_name(const std::string& name, const std::string& path) {
  const bool is_valid = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
  if (is_valid) return;
  throw invalid_field(path, str(path, ": expected 1 to ", kNameBytesMax,
                                " letters, digits, underscores or dashes, got ", quote(name), "."));
}

void store_prompt(const FieldValue& value, ApiRequest& request) {
  const OrderedJson& json = value.json;
  const bool is_list_of_prompts =
      json.is_array() && !json.empty() && (json[0].is_string() || json[0].is_array());
  if (!is_list_of_prompts) {
    request.prompts.push_back(one_prompt(json, value.name, value.rules));
    return;
  }
  check_count(value.name, json.size(), kPromptsMax);
  for (size_t i = 0; i < json.size(); ++i) {
    request.prompts.push_back(one_prompt(json[i], str(value.name, "[", i, "]"), value.rules));
  }
}

void store_sampling_parameter(const FieldValue& value, ApiRequest& request) {
  const SamplingField* field = find_sampling_field(value.name);
  HALLEY_CHECK(field != nullptr, value.name);
  std::visit(
      [&](auto member) {
        auto& target = request.sampling.*member;
        target = value.json.get<std::remove_reference_t<decltype(target)>>();
      },
      field->member);
}

void store_dry_sequence_breakers(const FieldValue& value, ApiRequest& request) {
  std::vector<std::string> texts = strings_of(value);
  check_count(value.name, texts.size(), kDryBreakersMax);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].empty() && texts[i].size() <= kDryBreakerBytesMax) continue;
    const std::string path = str(value.name, "[", i, "]");
    throw invalid_field(path, str(path, ": expected a text of 1 to ", kDryBreakerBytesMax,
                                  " bytes, got ", texts[i].size(), "."));
  }
  request.sampling.dry_sequence_breakers = std::move(texts);
}

void store_stop(const FieldValue& value, ApiRequest& request) {
  request.sampling.stop = strings_of(value);
  check_count(value.name, request.sampling.stop.size(), kStopsMax);
  size_t num_bytes = 0;
  for (const std::string& stop : request.sampling.stop) {
    if (stop.empty()) {
      throw invalid_field(
          value.name, str(value.name, ": expected texts of at least 1 byte, got an empty one."));
    }
    num_bytes += stop.size();
  }
  if (num_bytes > kStopBytesMax) {
    throw invalid_field(value.name, str(value.name, ": expected at most ", kStopBytesMax,
                                        " bytes in all texts, got ", num_bytes, "."));
  }
}

void store_stop_token_ids(const FieldValue& value, ApiRequest& request) {
  if (!value.json.is_array()) {
    throw invalid_field(value.name, str(value.name, ": expected a list of token ids, got ",
                                        kind_in_words(value.json), "."));
  }
  check_count(value.name, value.json.size(), kStopTokenIdsMax);
  request.sampling.stop_token_ids = token_ids_of(value.json, value.name, value.rules);
}

void store_bad_words(const FieldValue& value, ApiRequest& request) {
  if (!value.json.is_array()) {
    throw invalid_field(value.name, str(value.name, ": expected a list of strings, got ",
                                        kind_in_words(value.json), "."));
  }
  check_count(value.name, value.json.size(), kBadWordsMax);
  request.bad_words = strings_of(value);
  for (size_t i = 0; i < request.bad_words.size(); ++i) {
    const size_t num_bytes = request.bad_words[i].size();
    if (num_bytes > 0 && num_bytes <= kBadWordBytesMax) continue;
    const std::string path = str(value.name, "[", i, "]");
    throw invalid_field(
        path, str(path, ": expected 1 to ", kBadWordBytesMax, " bytes, got ", num_bytes, "."));
  }
}

void store_allowed_token_ids(const FieldValue& value, ApiRequest& request) {
  const bool is_list = value.json.is_array() && !value.json.empty();
  if (!is_list || value.json.size() > static_cast<size_t>(value.rules.vocab_size)) {
    throw invalid_field(
        value.name,
        str(value.name, ": expected a list of 1 to ", value.rules.vocab_size, " token ids, got ",
            value.json.is_array() ? str(value.json.size()) : kind_in_words(value.json), "."));
  }
  request.allowed_token_ids = token_ids_of(value.json, value.name, value.rules);
}

void store_truncate_prompt_tokens(const FieldValue& value, ApiRequest& request) {
  const auto num_tokens = value.json.get<int64_t>();
  if (num_tokens == 0) {
    throw invalid_field(value.name, str(value.name, ": expected -1 or at least 1 token, got 0."));
  }
  request.truncates_prompt_to = num_tokens;
}

void store_tokens(const FieldValue& value, ApiRequest& request) {
  if (!value.json.is_array()) {
    throw invalid_field(value.name, str(value.name, ": expected a list of token ids, got ",
                                        kind_in_words(value.json), "."));
  }
  request.token_ids = token_ids_of(value.json, value.name, value.rules);
}

void store_logit_bias(const FieldValue& value, ApiRequest& request) {
  expect_object(value.json, value.name);
  check_count(value.name, value.json.size(), kLogitBiasesMax);
  for (const auto& [key, bias] : value.json.items()) {
    int32_t id = -1;
    const char* end = key.data() + key.size();
    const auto result = std::from_chars(key.data(), end, id);
    if (result.ec != std::errc() || result.ptr != end || id < 0 || id >= value.rules.vocab_size) {
      throw invalid_field(value.name,
                          str("logit_bias: expected token ids of 0 to ", value.rules.vocab_size - 1,
                              " as names, got ", quote(key), "."));
    }
    const bool is_in_range = bias.is_number() && bias.get<double>() >= -kLogitBiasMax &&
                             bias.get<double>() <= kLogitBiasMax;
    if (!is_in_range) {
      throw invalid_field(value.name,
                          str("logit_bias: expected numbers of -100 to 100, got ",
                              bias.is_number() ? bias.dump() : kind_in_words(bias), "."));
    }
    // "7" and "07" are one token.
    if (!request.sampling.logit_bias.emplace(id, bias.get<double>()).second) {
      throw invalid_field(value.name,
                          str("logit_bias: expected every token once, got token ", id, " twice."));
    }
  }
}

void store_stream_options(const FieldValue& value, ApiRequest& request) {
  check_members(value.json, value.name, ObjectKind::kStreamOptions, value);
  request.includes_usage = bool_member(value.json, "include_usage", value.name);
  request.has_continuous_usage = bool_member(value.json, "continuous_usage_stats", value.name);
  if (bool_member(value.json, "include_obfuscation", value.name)) {
    throw invalid_field(value.name,
                        "stream_options.include_obfuscation: expected false: chunks are not "
                        "padded here.");
  }
}

void store_precision(const FieldValue& value, ApiRequest& request) {
  const auto& name = value.json.get_ref<const std::string&>();
  const auto mode = precision_mode_from_name(name);
  if (!mode) {
    throw invalid_field(value.name, str(value.name, ": expected full, low or auto, got ",
                                        quote(name, kNameBytesMax), "."));
  }
  request.precision = mode;
}

void store_slo(const FieldValue& value, ApiRequest& request) {
  check_members(value.json, value.name, ObjectKind::kSlo, value);
  request.slo = {.ttft = limit_member(value, "ttft_ms"), .tpot = limit_member(value, "tpot_ms")};
}

void store_chat_template_kwargs(const FieldValue& value, ApiRequest& request) {
  expect_object(value.json, value.name);
  check_count(value.name, value.json.size(), kTemplateKwargsMax);
  static const std::set<std::string, std::less<>> kOwn = {
      "messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template"};
  for (const auto& [key, argument] : value.json.items()) {
    if (kOwn.count(key) == 0) continue;
    throw invalid_field(value.name,
                        str("chat_template_kwargs: expected variables other than ", quote(key),
                            ", which is a field of its own or not "
                            "settable."));
  }
  request.template_kwargs = value.json;
}

void store_reasoning_effort(const FieldValue& value, ApiRequest& request) {
  const auto set = [&request](const char* name, const OrderedJson& variable) {
    if (!request.template_kwargs.contains(name)) request.template_kwargs[name] = variable;
  };
  if (value.rules.template_reads_effort) {
    set(value.name, value.json);
  } else if (value.rules.template_reads_enable_thinking) {
    set("enable_thinking", value.json != "none");
  } else {
    value.ignored.add({}, value.name);
  }
}

void store_thinking_token_budget(const FieldValue& value, ApiRequest& request) {
  const auto budget = value.json.get<int64_t>();
  if (budget < 0) return;
  if (!value.rules.has_reasoning_parser) {
    throw invalid_field(value.name,
                        "thinking_token_budget: expected a model whose reasoning is found, which "
                        "this one's is not. Start the server with --reasoning-parser.");
  }
  request.thinking_token_budget = budget;
}

}  // namespace halley
