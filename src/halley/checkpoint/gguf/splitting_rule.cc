#include "halley/checkpoint/gguf/splitting_rule.h"

#include <string>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kDigit = R"(\p{N})";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                               R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array kRules = {
    SplittingRule{.name = "gpt-2", .regexes = {kGpt2}},
    SplittingRule{.name = "olmo", .regexes = {kGpt2}},
    SplittingRule{.name = "smollm", .regexes = {kDigit, kGpt2}},
    SplittingRule{.name = "starcoder", .regexes = {kDigit, kGpt2}},
    SplittingRule{.name = "refact", .regexes = {kDigit, kGpt2}},
    SplittingRule{
        .name = "llama-bpe", .regexes = {kLlama3}, .ignores_merges = true, .has_bos = true},
    SplittingRule{.name = "llama3", .regexes = {kLlama3}, .ignores_merges = true, .has_bos = true},
    SplittingRule{
        .name = "llama-v3", .regexes = {kLlama3}, .ignores_merges = true, .has_bos = true},
    SplittingRule{.name = "dbrx", .regexes = {kLlama3}},
    SplittingRule{.name = "smaug-bpe", .regexes = {kLlama3}},
    SplittingRule{.name = "glm4", .regexes = {kLlama3}},
    SplittingRule{.name = "chatglm-bpe", .regexes = {kLlama3}},
    SplittingRule{.name = "qwen2", .regexes = {kQwen2}, .is_nfc = true},
    SplittingRule{.name = "deepseek-r1-qwen", .regexes = {kQwen2}, .is_nfc = true},
    SplittingRule{.name = "tekken", .regexes = {kTekken}, .ignores_merges = true, .has_bos = true},
    SplittingRule{.name = "gpt-4o", .regexes = {kGpt4o}},
};

}  // namespace

const SplittingRule& find_splitting_rule(const GgufMetadata& metadata) {
  constexpr const char* kKey = "tokenizer.ggml.pre";
  const std::string name = metadata.string(kKey).value_or("");
  std::string known;
  for (const SplittingRule& rule : kRules) {
    if (name == rule.name) return rule;
    known += str(known.empty() ? "" : ", ", rule.name);
  }
  throw UnsupportedError(str(metadata.where(), ": metadata ", quote(kKey), ": expected one of ",
                             known, ", got ", name.empty() ? "nothing" : quote(name),
                             ". Convert the model with a current llama.cpp, or take its "
                             "safetensors directory."));
}

}  // namespace halley
