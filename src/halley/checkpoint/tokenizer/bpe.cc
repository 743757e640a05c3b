#include "halley/checkpoint/tokenizer/bpe.h"

#include <limits>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/component.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

// Longer words are refused: positions in a word are 32-bit.
constexpr size_t kWordBytesMax = size_t{1} << 31;

void check_type(const Component& config) {
  // Files from before the member existed have BPE models only where there are merges.
  const std::string type = config.text_or("type", config.find("merges") != nullptr ? "BPE" : "");
  if (type == "BPE") return;
  if (type == "Unigram") {
    throw UnsupportedError(str(config.where(),
                               ": the model type \"Unigram\" is not supported in "
                               "tokenizer.json. Use the model's tokenizer.model: remove "
                               "tokenizer.json from the directory."));
  }
  throw UnsupportedError(str(config.where(), ": the model type ", quoted(type),
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

TokenTable parse_vocab(const Component& config) {
  const Json& vocab = config.member("vocab");
  if (!vocab.is_object()) config.fail("vocab", "an object");
  size_t num_text_bytes = 0;
  for (auto token = vocab.begin(); token != vocab.end(); ++token) {
    num_text_bytes += token.key().size();
  }
  TokenTable tokens;
  tokens.reserve(vocab.size(), num_text_bytes);
  for (auto token = vocab.begin(); token != vocab.end(); ++token) {
    if (!token->is_number_unsigned() || token->get<uint64_t>() >= kNumIdsMax) {
      throw InputError(str(config.where("vocab"), ": expected an id from 0 to ", kNumIdsMax - 1,
                           " for token ", quoted(token.key()), ", got ", quoted(token->dump(), 40),
                           "."));
    }
    const int32_t id = token->get<int32_t>();
    if (!tokens.add(token.key(), id)) {
      throw InputError(str(config.where("vocab"), ": tokens ", quoted(tokens.text_of(id)), " and ",
                           quoted(token.key()), " have the same id ", id, "."));
    }
  }
  return tokens;
}

struct MergeTexts {
  std::string_view left;
  std::string_view right;
};

// "a b" or ["a", "b"].
MergeTexts parse_merge(const Json& value, const std::string& where, size_t index) {
  if (value.is_string()) {
    const std::string_view text = value.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  } else if (value.is_array() && value.size() == 2 && value[0].is_string() &&
             value[1].is_string()) {
    return {value[0].get_ref<const std::string&>(), value[1].get_ref<const std::string&>()};
  }
  throw InputError(str(where, "[", index,
                       "]: expected \"left right\" or [\"left\", \"right\"], got ",
                       quoted(value.dump(), 60), "."));
}

MergeTable parse_merges(const Component& config, const TokenTable& tokens,
                        const std::string& prefix) {
  const Json& merges = config.array("merges");
  const std::string where = config.where("merges");
  if (merges.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    config.fail("merges", "at most 2147483647 merges");
  }
  MergeTable table;
  table.reserve(merges.size());
  std::string joined;
  int32_t rank = 0;
  for (size_t i = 0; i < merges.size(); ++i) {
    // The first line of a merges.txt, which some converters carry over.
    if (merges[i].is_string() && merges[i].get_ref<const std::string&>().starts_with("#version")) {
      continue;
    }
    const MergeTexts texts = parse_merge(merges[i], where, i);
    if (!texts.right.starts_with(prefix)) {
      throw InputError(str(where, "[", i,
                           "]: expected the second part to start with "
                           "continuing_subword_prefix ",
                           quoted(prefix), ", got ", quoted(texts.right), "."));
    }
    joined.assign(texts.left);
    joined += texts.right.substr(prefix.size());
    const int32_t left = tokens.find(texts.left);
    const int32_t right = tokens.find(texts.right);
    const int32_t id = tokens.find(joined);
    if (left < 0 || right < 0 || id < 0) {
      const std::string_view absent = left < 0 ? texts.left : right < 0 ? texts.right : joined;
      throw InputError(str(where, "[", i, "]: expected tokens of the vocabulary, got ",
                           quoted(absent), ", which is not there."));
    }
    table.add(left, right, {rank++, id});
  }
  return table;
}

}  // namespace

Bpe Bpe::parse(const Json& value, const std::string& where) {
  const Component config(value, where);
  check_type(config);
  check_dropout(config);
  Bpe bpe;
  bpe.where_ = where;
  bpe.options_ = parse_options(config);
  bpe.tokens_ = parse_vocab(config);
  bpe.merges_ = parse_merges(config, bpe.tokens_, bpe.options_.continuing_subword_prefix);
  bpe.has_affixes_ =
      !bpe.options_.continuing_subword_prefix.empty() || !bpe.options_.end_of_word_suffix.empty();
  bpe.index_chars();
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

int32_t Bpe::unk_id() const {
  const int32_t id = tokens_.find(*options_.unk_token);
  if (id < 0) {
    throw InputError(str(where_, ".unk_token: expected a token of the vocabulary, got ",
                         quoted(*options_.unk_token), ", and the text has an unknown character."));
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

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.size() > kWordBytesMax) {
    throw InputError(str("tokenizer: expected words of at most ", kWordBytesMax, " bytes, got ",
                         word.size(), ". Use a shorter text."));
  }
  if (options_.ignore_merges) {
    if (const int32_t id = tokens_.find(word); id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  const size_t begin = ids.size();
  split_to_chars(word, ids);
  merges_.merge_all(ids, begin);
}

}  // namespace halley
