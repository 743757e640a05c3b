#include "halley/checkpoint/tokenizer/bpe.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/component.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

// Longer words are rejected: positions in a word are 32-bit.
constexpr size_t kWordBytesMax = size_t{1} << 31;
constexpr uint64_t kWhole = uint64_t{1} << 32;

void check_type(const Component& config) {
  // Files from before the member existed have BPE models only where there are merges.
  const std::string type = config.text_or("type", config.json().contains("merges") ? "BPE" : "");
  if (type == "BPE") return;
  if (type == "Unigram") {
    throw UnsupportedError(str(config.where(),
                               ": the model type \"Unigram\" is not supported in "
                               "tokenizer.json. Use the model's tokenizer.model: remove "
                               "tokenizer.json from the directory."));
  }
  throw UnsupportedError(str(config.where(), ": the model type ", quote(type),
                             " is not supported, only \"BPE\" is. Use a model whose tokenizer is "
                             "BPE or SentencePiece."));
}

void check_dropout(const Component& config) {
  const Json* dropout = config.find("dropout");
  if (dropout == nullptr) return;
  if (!dropout->is_number()) config.fail("dropout", "null or a number");
  if (dropout->get<double>() != 0.0) {
    throw UnsupportedError(str(config.where("dropout"),
                               ": BPE dropout is not supported, since it "
                               "makes the ids random. Set it to null."));
  }
}

BpeOptions parse_options(const Component& config) {
  BpeOptions options;
  if (config.find("unk_token") != nullptr) options.unk_token = config.text("unk_token");
  options.continuing_subword_prefix = config.text_or("continuing_subword_prefix", "");
  options.end_of_word_suffix = config.text_or("end_of_word_suffix", "");
  options.fuse_unk = config.boolean_or("fuse_unk", false);
  options.byte_fallback = config.boolean_or("byte_fallback", false);
  options.ignore_merges = config.boolean_or("ignore_merges", false);
  return options;
}

TokenTable index_vocab(const ModelTables& tables, const std::string& where) {
  TokenTable tokens;
  tokens.reserve(tables.vocab.size(), tables.texts.size());
  for (const ModelTables::Token& token : tables.vocab) {
    const std::string_view text = tables.text_of(token.text);
    if (token.id >= static_cast<uint64_t>(kNumIdsMax)) {
      throw InputError(str(where, ".vocab: expected an id from 0 to ", kNumIdsMax - 1,
                           " for token ", quote(text), ", got ", token.id, "."));
    }
    const int32_t id = static_cast<int32_t>(token.id);
    if (!tokens.add(text, id)) {
      const bool is_same_text = tokens.find(text) >= 0;
      throw InputError(str(where, ".vocab: ",
                           is_same_text
                               ? str("expected each token once, got ", quote(text), " twice.")
                               : str("tokens ", quote(tokens.text_of(id)), " and ", quote(text),
                                     " have the same id ", id, ".")));
    }
  }
  return tokens;
}

MergeTable index_merges(const ModelTables& tables, const TokenTable& tokens,
                        const std::string& prefix, const std::string& where) {
  if (tables.merges.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw InputError(
        str(where, ".merges: expected at most 2147483647 merges, got ", tables.merges.size(), "."));
  }
  MergeTable merges;
  merges.reserve(tables.merges.size());
  std::string joined;
  int32_t rank = 0;
  for (const ModelTables::MergePair& pair : tables.merges) {
    const std::string_view left_text = tables.text_of(pair.left);
    const std::string_view right_text = tables.text_of(pair.right);
    if (!right_text.starts_with(prefix)) {
      throw InputError(str(where, ".merges[", rank,
                           "]: expected the second part to start with "
                           "continuing_subword_prefix ",
                           quote(prefix), ", got ", quote(right_text), "."));
    }
    joined.assign(left_text);
    joined += right_text.substr(prefix.size());
    const int32_t left = tokens.find(left_text);
    const int32_t right = tokens.find(right_text);
    const int32_t id = tokens.find(joined);
    if (left < 0 || right < 0 || id < 0) {
      const std::string_view absent = left < 0 ? left_text : right < 0 ? right_text : joined;
      throw InputError(str(where, ".merges[", rank, "]: expected tokens of the vocabulary, got ",
                           quote(absent), ", which is not there."));
    }
    merges.add(left, right, {rank++, id});
  }
  return merges;
}

}  // namespace

Bpe Bpe::parse(const Json& value, const ModelTables* tables, const std::string& where) {
  const Component config(value, where);
  check_type(config);
  check_dropout(config);
  for (const char* member : {"vocab", "merges"}) {
    if (!config.json().contains(member)) config.fail(member, "a value");
  }
  Bpe bpe;
  bpe.where_ = where;
  bpe.options_ = parse_options(config);
  const ModelTables parsed = tables == nullptr ? model_tables_of(config) : ModelTables();
  const ModelTables& used = tables == nullptr ? parsed : *tables;
  bpe.tokens_ = index_vocab(used, where);
  bpe.merges_ = index_merges(used, bpe.tokens_, bpe.options_.continuing_subword_prefix, where);
  bpe.has_affixes_ =
      !bpe.options_.continuing_subword_prefix.empty() || !bpe.options_.end_of_word_suffix.empty();
  bpe.index_chars();
  bpe.index_shares();
  return bpe;
}

void Bpe::index_chars() {
  for (uint32_t byte = 0; byte < byte_ids_.size(); ++byte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    const char text[] = {'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'};
    byte_ids_[byte] = tokens_.find(std::string_view(text, sizeof(text)));
  }
  std::string text;
  for (uint32_t code = 0; code < char_ids_.size(); ++code) {
    text.clear();
    append_utf8(text, code);
    char_ids_[code] = tokens_.find(text);
  }
}

void Bpe::index_shares() {
  std::array<size_t, 256> longest{};
  for (int32_t id = 0; id < tokens_.num_ids(); ++id) {
    const std::string_view text = tokens_.text_of(id);
    for (const char c : text) {
      size_t& length = longest[static_cast<uint8_t>(c)];
      length = std::max(length, text.size());
    }
  }
  for (size_t byte = 0; byte < longest.size(); ++byte) {
    byte_shares_[byte] = longest[byte] == 0 ? 0 : kWhole / longest[byte];
  }
}

// The fewest ids that merging may make of these. A merged token's text is that of its parts, and
// has no byte whose share is more than 1 / its own length: the shares of its bytes are at most 1.
size_t Bpe::num_merged_min(std::span<const int32_t> ids) const {
  if (has_affixes_) return 0;  // texts lose a prefix when they merge
  uint64_t shares = 0;
  size_t num_ids = 0;
  for (const int32_t id : ids) {
    for (const char c : tokens_.text_of(id)) shares += byte_shares_[static_cast<uint8_t>(c)];
    num_ids += shares / kWhole;
    shares %= kWhole;
  }
  return num_ids + (shares > 0 ? 1 : 0);
}

int32_t Bpe::unk_id() const {
  const int32_t id = tokens_.find(*options_.unk_token);
  if (id < 0) {
    throw InputError(str(where_, ".unk_token: expected a token of the vocabulary, got ",
                         quote(*options_.unk_token), ", and the text has an unknown character."));
  }
  return id;
}

int32_t Bpe::id_of_char(std::string_view character, bool is_first, bool is_last) const {
  if (!has_affixes_) {
    const uint32_t code = first_char(character).code;
    return code < char_ids_.size() ? char_ids_[code] : tokens_.find(character);
  }
  std::string text;
  if (!is_first) text += options_.continuing_subword_prefix;
  text += character;
  if (is_last) text += options_.end_of_word_suffix;
  return tokens_.find(text);
}

bool Bpe::add_byte_tokens(std::string_view character, std::vector<int32_t>& ids) const {
  for (const char c : character) {
    if (byte_ids_[static_cast<uint8_t>(c)] < 0) return false;
  }
  for (const char c : character) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
  return true;
}

void Bpe::split_to_chars(std::string_view word, std::vector<int32_t>& ids) const {
  int32_t pending_unk = -1;
  size_t i = 0;
  while (i < word.size()) {
    const size_t num_bytes = first_char(word.substr(i)).num_bytes;
    const std::string_view character = word.substr(i, num_bytes);
    const bool is_first = i == 0;
    i += num_bytes;
    const bool is_last = i == word.size();
    const int32_t id = id_of_char(character, is_first, is_last);
    if (id >= 0) {
      if (pending_unk >= 0) ids.push_back(std::exchange(pending_unk, -1));
      ids.push_back(id);
      continue;
    }
    if (options_.byte_fallback) {
      std::string text;
      if (has_affixes_ && !is_first) text += options_.continuing_subword_prefix;
      text += character;
      if (has_affixes_ && is_last) text += options_.end_of_word_suffix;
      // An unknown token that waits stays behind these bytes: so does Hugging Face.
      if (add_byte_tokens(text, ids)) continue;
    }
    // Without an unknown token the character is lost, as in Hugging Face.
    if (!options_.unk_token) continue;
    if (pending_unk >= 0 && !options_.fuse_unk) ids.push_back(pending_unk);
    pending_unk = unk_id();
  }
  if (pending_unk >= 0) ids.push_back(pending_unk);
}

bool Bpe::encode(std::string_view word, std::vector<int32_t>& ids, StopCheck& check,
                 size_t num_ids_max) const {
  if (word.size() > kWordBytesMax) {
    throw InputError(str("tokenizer: expected words of at most ", kWordBytesMax, " bytes, got ",
                         word.size(), ". Use a shorter text."));
  }
  if (options_.ignore_merges) {
    if (const int32_t id = tokens_.find(word); id >= 0) {
      ids.push_back(id);
      return true;
    }
  }
  const size_t begin = ids.size();
  split_to_chars(word, ids);
  if (ids.size() > num_ids_max &&
      begin + num_merged_min(std::span(ids).subspan(begin)) > num_ids_max) {
    return false;
  }
  return merges_.merge_all(ids, begin, check);
}

}  // namespace halley
