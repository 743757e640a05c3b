#include "halley/checkpoint/tokenizer/added_tokens.h"

#include <array>
#include <utility>

#include "halley/checkpoint/tokenizer/pcre.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

bool is_word_char(std::string_view character) {
  static const PcrePattern word("[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]",
                                "single_word");
  return !word.find_all(character).empty();
}

bool starts_with_word(std::string_view text) {
  return !text.empty() && is_word_char(text.substr(0, first_char(text).num_bytes));
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word_char(text.substr(last_char_begin(text)));
}

size_t begin_of_white_space_before(std::string_view text, size_t end, size_t begin_min) {
  while (end > begin_min) {
    const size_t last = last_char_begin(text.substr(0, end));
    if (last < begin_min || !is_white_space(first_char(text.substr(last)).code)) break;
    end = last;
  }
  return end;
}

size_t end_of_white_space_behind(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const Utf8Char next = first_char(text.substr(begin));
    if (!is_white_space(next.code)) break;
    begin += next.num_bytes;
  }
  return begin;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder() : nodes_(1) {}

uint32_t AddedTokenFinder::child_of(uint32_t node, uint8_t byte) const {
  for (const auto& [child_byte, child] : nodes_[node].children) {
    if (child_byte == byte) return child;
  }
  return 0;
}

void AddedTokenFinder::add(std::string_view pattern, const AddedToken& token) {
  if (pattern.empty()) return;
  uint32_t node = 0;
  for (const char c : pattern) {
    const uint8_t byte = static_cast<uint8_t>(c);
    uint32_t child = child_of(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      nodes_[node].children.emplace_back(byte, child);
    }
    node = child;
  }
  if (nodes_[node].token_index >= 0) return;
  nodes_[node].token_index = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

AddedTokenFinder::Match AddedTokenFinder::longest_match(std::string_view text, size_t begin) const {
  Match match{begin, -1};
  uint32_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    node = child_of(node, static_cast<uint8_t>(text[i]));
    if (node == 0) break;
    if (nodes_[node].token_index >= 0) match = {i + 1, nodes_[node].token_index};
  }
  return match;
}

std::vector<AddedTokenPart> AddedTokenFinder::split(std::string_view text) const {
  std::vector<AddedTokenPart> parts;
  std::array<bool, 256> is_first_byte{};
  for (const auto& child : nodes_[0].children) is_first_byte[child.first] = true;
  size_t covered = 0;  // all before this is in `parts`
  size_t i = 0;
  while (i < text.size()) {
    if (!is_first_byte[static_cast<uint8_t>(text[i])]) {
      ++i;
      continue;
    }
    const Match match = longest_match(text, i);
    if (match.token_index < 0) {
      ++i;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(match.token_index)];
    size_t begin = i;
    size_t end = match.end;
    i = match.end;
    if (token.single_word &&
        (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) {
      continue;
    }
    if (token.lstrip) begin = begin_of_white_space_before(text, begin, covered);
    if (token.rstrip) end = end_of_white_space_behind(text, end);
    if (covered < begin) parts.push_back({covered, begin, -1});
    parts.push_back({begin, end, token.id});
    covered = end;
  }
  if (covered < text.size()) parts.push_back({covered, text.size(), -1});
  return parts;
}

}  // namespace halley
