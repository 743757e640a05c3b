#include "halley/checkpoint/gguf/tokenizer_text.h"

#include <array>
#include <cstring>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/gguf/splitting_rule.h"
#include "halley/checkpoint/gguf/vocabulary.h"
#include "halley/json/json_text.h"

namespace halley {
namespace {

constexpr const char* kModel = "tokenizer.ggml.model";
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

bool has_boundary(const GgufMetadata& metadata, const char* name, bool fallback) {
  return metadata.boolean(str("tokenizer.ggml.add_", name, "_token")).value_or(fallback);
}

// ---- tokenizer.json -----------------------------------------------------------------------------

std::string added_tokens_json(const GgufVocabulary& vocabulary) {
  std::string json;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!vocabulary.is_added(id)) continue;
    const bool is_special = vocabulary.types[id] == GgufTokenType::kControl;
    json += str(json.empty() ? "" : ",", "{\"id\":", id,
                ",\"content\":", json_string(vocabulary.tokens[id]),
                ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
                "\"special\":",
                is_special ? "true" : "false", "}");
  }
  return str("[", json, "]");
}

std::string vocab_json(const GgufVocabulary& vocabulary) {
  std::string json = "{";
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.is_added(id)) continue;
    if (json.size() > 1) json += ',';
    append_json_string(vocabulary.tokens[id], json);
    json += ':';
    json += std::to_string(id);
  }
  return json + "}";
}

std::string merges_json(const GgufMetadata& metadata) {
  constexpr const char* kMerges = "tokenizer.ggml.merges";
  const auto merges = metadata.strings(kMerges);
  if (!merges) metadata.fail(kMerges, "expected merges, got nothing. Convert the model again.");
  std::string json = "[";
  for (const std::string_view merge : *merges) {
    if (json.size() > 1) json += ',';
    append_json_string(merge, json);
  }
  return json + "]";
}

std::string split_json(std::string_view regex) {
  return str("{\"type\":\"Split\",\"pattern\":{\"Regex\":", json_string(regex),
             "},\"behavior\":\"Isolated\",\"invert\":false}");
}

std::string pre_tokenizer_json(const SplittingRule& rule) {
  std::string steps;
  for (const char* regex : rule.regexes) {
    if (regex != nullptr) steps += split_json(regex) + ",";
  }
  return str("{\"type\":\"Sequence\",\"pretokenizers\":[", steps,
             "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
             "\"use_regex\":false}]}");
}

/// A TemplateProcessing with the tokens before and behind a text, or null where there are none.
std::string post_processor_json(const GgufMetadata& metadata, const GgufVocabulary& vocabulary,
                                bool has_bos_default) {
  std::string steps = "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}", tokens;
  const auto add = [&](const char* name, bool is_wanted, bool is_before) {
    const auto id = gguf_token_id(metadata, vocabulary, name);
    if (!is_wanted || !id) return;
    const std::string text = json_string(vocabulary.tokens[static_cast<size_t>(*id)]);
    const std::string step = str("{\"SpecialToken\":{\"id\":", text, ",\"type_id\":0}}");
    steps = is_before ? str(step, ",", steps) : str(steps, ",", step);
    if (tokens.find(text + ":") != std::string::npos) return;
    tokens += str(tokens.empty() ? "" : ",", text, ":{\"id\":", text, ",\"ids\":[", *id,
                  "],\"tokens\":[", text, "]}");
  };
  add("bos", has_boundary(metadata, "bos", has_bos_default), true);
  add("eos", has_boundary(metadata, "eos", false), false);
  if (tokens.empty()) return "null";
  return str("{\"type\":\"TemplateProcessing\",\"single\":[", steps, "],\"pair\":[", steps,
             ",{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{", tokens, "}}");
}

// ---- tokenizer.model: a ModelProto of sentencepiece_model.proto ---------------------------------

void append_varint(uint64_t value, std::string& proto) {
  for (; value >= 0x80; value >>= 7) proto += static_cast<char>(value | 0x80);
  proto += static_cast<char>(value);
}

void append_integer(uint32_t field, uint64_t value, std::string& proto) {
  append_varint(field << 3, proto);
  append_varint(value, proto);
}

void append_bytes(uint32_t field, std::string_view bytes, std::string& proto) {
  append_varint(field << 3 | 2, proto);
  append_varint(bytes.size(), proto);
  proto += bytes;
}

void append_float(uint32_t field, float value, std::string& proto) {
  append_varint(field << 3 | 5, proto);
  std::array<char, sizeof(value)> bytes{};
  std::memcpy(bytes.data(), &value, sizeof(value));
  proto.append(bytes.data(), bytes.size());
}

std::string piece_proto(const GgufVocabulary& vocabulary, size_t id) {
  std::string piece;
  append_bytes(1, vocabulary.tokens[id], piece);
  append_float(2, static_cast<float>(vocabulary.scores[id]), piece);
  append_integer(3, static_cast<uint64_t>(vocabulary.types[id]), piece);
  return piece;
}

std::string trainer_proto(const GgufMetadata& metadata, const GgufVocabulary& vocabulary) {
  constexpr uint64_t kBpe = 2, kNoId = ~uint64_t{0};  // -1
  bool has_bytes = false;
  uint64_t unknown = 0;
  for (size_t id = 0; id < vocabulary.types.size(); ++id) {
    has_bytes = has_bytes || vocabulary.types[id] == GgufTokenType::kByte;
    if (vocabulary.types[id] == GgufTokenType::kUnknown) unknown = id;
  }
  std::string trainer;
  append_integer(3, kBpe, trainer);
  append_integer(4, vocabulary.tokens.size(), trainer);
  append_integer(35, has_bytes ? 1 : 0, trainer);
  append_integer(40, unknown, trainer);
  const auto append_id = [&](uint32_t field, const char* name) {
    const auto id = gguf_token_id(metadata, vocabulary, name);
    append_integer(field, id ? static_cast<uint64_t>(*id) : kNoId, trainer);
    if (!id) return;
    const std::string_view text = vocabulary.tokens[static_cast<size_t>(*id)];
    append_bytes(field + 5, text, trainer);  // unk_piece 45, bos_piece 46, eos_piece 47
  };
  append_bytes(45, vocabulary.tokens[unknown], trainer);
  append_id(41, "bos");
  append_id(42, "eos");
  append_integer(43, kNoId, trainer);
  return trainer;
}

// ---- tokenizer_config.json ----------------------------------------------------------------------

/// One template, or a list of named ones where the file has more.
std::string chat_template_json(const GgufMetadata& metadata) {
  const auto plain = metadata.string("tokenizer.chat_template");
  const auto names = metadata.strings("tokenizer.chat_templates");
  if (!names || names->empty()) return plain ? json_string(*plain) : "null";
  std::string list;
  const auto add = [&](std::string_view name, const std::string& text) {
    list += str(list.empty() ? "" : ",", "{\"name\":", json_string(name),
                ",\"template\":", json_string(text), "}");
  };
  if (plain) add("default", *plain);
  for (const std::string_view name : *names) {
    const auto text = metadata.string(str("tokenizer.chat_template.", name));
    if (text) add(name, *text);
  }
  return str("[", list, "]");
}

/// Tokens that are found in a text before SentencePiece sees it. It finds those with its mark for a
/// space itself.
std::string added_tokens_decoder_json(const GgufVocabulary& vocabulary) {
  std::string json;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!vocabulary.is_added(id)) continue;
    if (vocabulary.tokens[id].find(kSpaceMark) != std::string_view::npos) continue;
    const bool is_special = vocabulary.types[id] == GgufTokenType::kControl;
    json += str(json.empty() ? "" : ",", "\"", id,
                "\":{\"content\":", json_string(vocabulary.tokens[id]),
                ",\"special\":", is_special ? "true" : "false", "}");
  }
  return str("{", json, "}");
}

}  // namespace

GgufTokenizer gguf_tokenizer_of(const GgufMetadata& metadata) {
  const auto model = metadata.string(kModel);
  if (!model || *model == "none" || *model == "no_vocab") return GgufTokenizer::kNone;
  if (*model == "gpt2") return GgufTokenizer::kByteLevelBpe;
  if (*model == "llama") return GgufTokenizer::kSentencePiece;
  throw UnsupportedError(str(metadata.where(), ": metadata ", quote(kModel),
                             ": expected gpt2 or llama, got ", quote(*model),
                             ". Take the model's safetensors directory."));
}

std::string make_tokenizer_json(const GgufMetadata& metadata) {
  const GgufVocabulary vocabulary = read_gguf_vocabulary(metadata);
  const SplittingRule& rule = find_splitting_rule(metadata);
  return str("{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":",
             added_tokens_json(vocabulary),
             ",\"normalizer\":", rule.is_nfc ? "{\"type\":\"NFC\"}" : "null",
             ",\"pre_tokenizer\":", pre_tokenizer_json(rule),
             ",\"post_processor\":", post_processor_json(metadata, vocabulary, rule.has_bos),
             ",\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,"
             "\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
             "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,"
             "\"byte_fallback\":false,\"ignore_merges\":",
             rule.ignores_merges ? "true" : "false", ",\"vocab\":", vocab_json(vocabulary),
             ",\"merges\":", merges_json(metadata), "}}");
}

std::string make_tokenizer_model(const GgufMetadata& metadata) {
  const GgufVocabulary vocabulary = read_gguf_vocabulary(metadata);
  if (vocabulary.scores.empty()) {
    metadata.fail("tokenizer.ggml.scores", "expected scores, got nothing. Convert it again.");
  }
  std::string proto;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    append_bytes(1, piece_proto(vocabulary, id), proto);
  }
  append_bytes(2, trainer_proto(metadata, vocabulary), proto);
  const auto flag = [&](const char* key, bool fallback) -> uint64_t {
    return metadata.boolean(key).value_or(fallback) ? 1 : 0;
  };
  std::string normalizer;
  append_bytes(1, "identity", normalizer);
  append_integer(3, flag("tokenizer.ggml.add_space_prefix", true), normalizer);
  append_integer(4, flag("tokenizer.ggml.remove_extra_whitespaces", false), normalizer);
  append_integer(5, 1, normalizer);  // spaces become U+2581
  append_bytes(3, normalizer, proto);
  return proto;
}

std::string make_tokenizer_config(const GgufMetadata& metadata) {
  const bool is_spm = gguf_tokenizer_of(metadata) == GgufTokenizer::kSentencePiece;
  std::string json = str("{\"chat_template\":", chat_template_json(metadata));
  if (gguf_tokenizer_of(metadata) == GgufTokenizer::kNone) return json + "}";
  const GgufVocabulary vocabulary = read_gguf_vocabulary(metadata);
  struct Member {
    const char* name;
    const char* member;
  };
  for (const Member& token : {Member{"bos", "bos_token"}, Member{"eos", "eos_token"},
                              Member{"unknown", "unk_token"}, Member{"padding", "pad_token"}}) {
    const auto id = gguf_token_id(metadata, vocabulary, token.name);
    if (!id) continue;
    json +=
        str(",\"", token.member, "\":", json_string(vocabulary.tokens[static_cast<size_t>(*id)]));
  }
  if (is_spm) {
    const auto flag = [&](const char* name, bool fallback) {
      return has_boundary(metadata, name, fallback) ? "true" : "false";
    };
    json += str(",\"add_bos_token\":", flag("bos", true), ",\"add_eos_token\":", flag("eos", false),
                ",\"added_tokens_decoder\":", added_tokens_decoder_json(vocabulary));
  }
  return json + "}";
}

}  // namespace halley
