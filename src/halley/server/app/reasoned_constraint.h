// Reasoning in front of a constrained output, and the budget of reasoning.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/constraint/token_constraint.h"
#include "halley/constraint/token_trie.h"
#include "halley/server/openai/reasoning.h"

namespace halley {

/// A vocabulary's tokens as a dialect's parser reads them. Immutable; any thread.
class ReasoningTokens {
 public:
  ReasoningTokens(std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<const TokenTrie> trie,
                  const ReasoningDialect& dialect);

  /// Special tokens are written out; empty for ids that the vocabulary does not have.
  std::string_view text_of(int32_t id) const;
  std::vector<int32_t> encode(std::string_view text) const {
    return tokenizer_->encode(text, /*add_special_tokens=*/false);
  }
  const TokenTrie& trie() const { return *trie_; }
  const ReasoningDialect& dialect() const { return dialect_; }

  /// The ids of the opening markers.
  const std::vector<std::vector<int32_t>>& openings() const { return openings_; }
  /// Tokens of line ends, which models write between reasoning and an answer.
  const std::vector<int32_t>& line_ends() const { return line_ends_; }
  /// Tokens with the last byte of a closing marker and text behind it.
  const std::vector<int32_t>& with_text_behind() const { return with_text_behind_; }

 private:
  void sort_token(int32_t id);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::shared_ptr<const TokenTrie> trie_;
  const ReasoningDialect& dialect_;
  std::unordered_map<int32_t, std::string> special_;
  std::vector<std::vector<int32_t>> openings_;
  std::vector<int32_t> line_ends_, with_text_behind_;
};

/// A constraint whose outputs are reasoning and then an output of `inner`. Before the latter there
/// may be one token of line ends, and reasoning does not end with EOS. Null: any output, which ends
/// as without a constraint. After `num_tokens_max` tokens of reasoning, those of its ending are
/// forced. `start` must have a dialect: that of `tokens`.
std::shared_ptr<const CompiledConstraint> constraint_behind_reasoning(
    std::shared_ptr<const ReasoningTokens> tokens, const ReasoningStart& start,
    std::optional<int64_t> num_tokens_max, std::shared_ptr<const CompiledConstraint> inner);

}  // namespace halley
