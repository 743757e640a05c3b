#include "halley/constraint/token_trie.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/byte_level.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

// The number of characters if all are plain, else nothing.
std::optional<size_t> num_plain_chars(std::string_view text) {
  if (!is_valid_utf8(text)) return std::nullopt;
  size_t count = 0;
  while (!text.empty()) {
    const Utf8Char next = first_char(text);
    if (next.code < 0x20 || next.code == '"' || next.code == '\\') return std::nullopt;
    text.remove_prefix(next.num_bytes);
    ++count;
  }
  return count;
}

void set_token(TokenMask& mask, int32_t id) {
  mask[static_cast<size_t>(id) / 64] |= uint64_t{1} << (static_cast<size_t>(id) % 64);
}

TokenTrieNodes make_nodes(std::vector<int32_t> ids, const std::vector<std::string>& token_bytes) {
  const auto bytes_of = [&](int32_t id) {
    return std::string_view(token_bytes[static_cast<size_t>(id)]);
  };
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return bytes_of(a) != bytes_of(b) ? bytes_of(a) < bytes_of(b) : a < b;
  });
  TokenTrieNodes trie;
  std::vector<size_t> path;  // nodes from the root to the last token
  std::string_view last;
  const auto close_from = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      trie.nodes[path.back()].end = static_cast<int32_t>(trie.nodes.size());
    }
  };
  for (const int32_t id : ids) {
    const std::string_view bytes = bytes_of(id);
    const size_t num_shared = static_cast<size_t>(
        std::mismatch(last.begin(), last.end(), bytes.begin(), bytes.end()).first - last.begin());
    close_from(num_shared);
    while (path.size() < bytes.size()) {
      path.push_back(trie.nodes.size());
      trie.nodes.push_back({.end = 0,
                            .first_token = static_cast<int32_t>(trie.tokens.size()),
                            .depth = static_cast<uint16_t>(path.size()),
                            .byte = static_cast<uint8_t>(bytes[path.size() - 1])});
    }
    trie.tokens.push_back(id);
    last = bytes;
  }
  close_from(0);
  trie.nodes.push_back({.end = 0, .first_token = static_cast<int32_t>(trie.tokens.size())});
  return trie;
}

std::optional<uint8_t> byte_token_value(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const size_t digit = std::string_view("0123456789ABCDEFabcdef").find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = value * 16 + static_cast<int>(digit < 16 ? digit : digit - 6);
  }
  return static_cast<uint8_t>(value);
}

std::string lossy_utf8(std::string_view bytes) {
  std::string text;
  LossyUtf8 utf8;
  utf8.push(bytes, text);
  utf8.finish(text);
  return text;
}

// The bytes of a token that the vocabulary spells `token` and that decodes to `text`.
std::string bytes_behind(const std::string& token, const std::string& text) {
  if (text.find(kReplacementCharacter) == std::string::npos) return text;
  if (const std::optional<uint8_t> byte = byte_token_value(token)) {
    return std::string(1, static_cast<char>(*byte));
  }
  const std::optional<std::string> bytes = bytes_of_byte_level(token);
  return bytes && lossy_utf8(*bytes) == text ? *bytes : text;
}

// A separator token, which writes ASCII letters in any context.
std::optional<int32_t> find_separator(const Tokenizer& tokenizer) {
  for (const char* letter : {"a", "e", "x", "0"}) {
    const std::optional<int32_t> id = tokenizer.id_of(letter);
    if (id && !tokenizer.is_special(*id)) return id;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> token_bytes_of(const Tokenizer& tokenizer) {
  const std::optional<int32_t> separator = find_separator(tokenizer);
  if (!separator) {
    throw UnsupportedError(
        "tokenizer: constrained output needs a token for one of the letters a, e, x, 0, and this "
        "vocabulary has none.");
  }
  // Between two separators a token decodes as in the middle of a text; bytes that the decoder held
  // back come with the second separator.
  IncrementalDetokenizer detokenizer(tokenizer, /*skip_special_tokens=*/false);
  detokenizer.push(*separator);
  const std::string mark = detokenizer.push(*separator);
  std::vector<std::string> all(static_cast<size_t>(tokenizer.num_ids()));
  for (int32_t id = 0; id < tokenizer.num_ids(); ++id) {
    const std::string token = tokenizer.token_of(id);
    if (token.empty() || tokenizer.is_special(id)) continue;
    std::string text = detokenizer.push(id);
    text += detokenizer.push(*separator);
    if (mark.empty() || !text.ends_with(mark)) {
      throw UnsupportedError(
          str("tokenizer: constrained output needs a decoder that writes tokens "
              "one by one, and this one holds text of token ",
              id, " back."));
    }
    text.resize(text.size() - mark.size());
    all[static_cast<size_t>(id)] = bytes_behind(token, text);
  }
  return all;
}

TokenTrie::TokenTrie(std::vector<std::string> token_bytes, std::span<const int32_t> eos_token_ids)
    : token_bytes_(std::move(token_bytes)) {
  for (const int32_t id : eos_token_ids) {
    // Models may have ids that the tokenizer lacks; these are never allowed.
    if (id < 0 || id >= num_ids()) continue;
    token_bytes_[static_cast<size_t>(id)].clear();
    eos_token_ids_.push_back(id);
  }
  std::vector<int32_t> plain;
  std::vector<int32_t> other;
  plain_masks_.assign(kPlainCharsMax + 1, TokenMask(num_mask_words(), 0));
  for (int32_t id = 0; id < num_ids(); ++id) {
    const std::string_view bytes = bytes_of(id);
    if (bytes.empty() || bytes.size() > kTokenBytesMax) continue;
    const std::optional<size_t> num_chars = num_plain_chars(bytes);
    if (!num_chars || *num_chars > kPlainCharsMax) {
      other.push_back(id);
      continue;
    }
    plain.push_back(id);
    set_token(plain_masks_[*num_chars], id);
  }
  for (size_t n = 1; n < plain_masks_.size(); ++n) {
    for (size_t word = 0; word < plain_masks_[n].size(); ++word) {
      plain_masks_[n][word] |= plain_masks_[n - 1][word];
    }
  }
  plain_ = make_nodes(std::move(plain), token_bytes_);
  other_ = make_nodes(std::move(other), token_bytes_);
}

std::shared_ptr<const TokenTrie> TokenTrie::from_tokenizer(
    const Tokenizer& tokenizer, std::span<const int32_t> eos_token_ids,
    std::span<const std::string> special_marks) {
  std::vector<std::string> token_bytes = token_bytes_of(tokenizer);
  for (const std::string& mark : special_marks) {
    const std::optional<int32_t> id = tokenizer.id_of(mark);
    if (id && tokenizer.is_special(*id)) {
      token_bytes[static_cast<size_t>(*id)] = bytes_of_special(mark);
    }
  }
  return std::make_shared<const TokenTrie>(std::move(token_bytes), eos_token_ids);
}

std::string bytes_of_special(std::string_view name) { return str('\x01', name); }

bool TokenTrie::is_eos(int32_t id) const {
  return std::find(eos_token_ids_.begin(), eos_token_ids_.end(), id) != eos_token_ids_.end();
}

const TokenMask& TokenTrie::plain_mask(size_t num_chars) const {
  return plain_masks_[std::min(num_chars, kPlainCharsMax)];
}

}  // namespace halley
