// Compiles a request's constraints on its output (output_format, tool_choice) for the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "halley/base/byte_budget.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/constraint/mask_memory.h"
#include "halley/constraint/token_constraint.h"
#include "halley/constraint/token_trie.h"
#include "halley/server/app/constraint_cache.h"
#include "halley/server/app/reasoned_constraint.h"
#include "halley/server/openai/api_request.h"
#include "halley/server/openai/tool_calls.h"

namespace halley {

/// The format of the calls that tool_choice demands from the served model.
struct ForcedCallStyle {
  ToolDialect dialect = ToolDialect::kNone;  // JSON without markers unless is_enforceable()
  std::vector<std::string> special_marks = {};
};

/// Whether the request demands a format of its output.
bool is_constrained(const ApiRequest& request);

/// The request's field that does, for messages.
std::string constraint_field(const ApiRequest& request);

/// Adds the keywords of the request's schemas that no grammar can enforce to request.ignored.
void report_unenforced(ApiRequest& request);

/// Thread-safe. Keeps results, whose masks get better with use. The memory of constraints, used and
/// kept, is bounded, and so is that of all masks together.
class ConstraintCompiler {
 public:
  /// At most `num_bytes_max` bytes of constraints as they are before their first mask.
  ConstraintCompiler(std::shared_ptr<const Tokenizer> tokenizer, std::vector<int32_t> eos_token_ids,
                     ToolDialect dialect, size_t num_bytes_max);

  /// The constraint, if a request before had the same and it is kept. Does not wait.
  std::shared_ptr<const CompiledConstraint> find(const ApiRequest& request);

  /// Returns null for an unconstrained output. The first call for a vocabulary takes up to a
  /// second; equal constraints are compiled once. Throws ApiError 400 with the JSON pointer if a
  /// schema is invalid or not supported, 503 if the constraints of other requests leave too little
  /// memory.
  std::shared_ptr<const CompiledConstraint> compile(const ApiRequest& request);

  /// The constraint of an output that begins with reasoning: `constraint` (null: none) holds behind
  /// it, and the request's budget in it. Throws ApiError 400 where the vocabulary cannot have a
  /// budget.
  std::shared_ptr<const CompiledConstraint> behind_reasoning(
      std::shared_ptr<const CompiledConstraint> constraint, const ApiRequest& request,
      const ReasoningStart& start);

  /// The constraint of a request's bad_words or allowed_token_ids, with which it has no other;
  /// null: it has neither.
  std::shared_ptr<const CompiledConstraint> of_tokens(const ApiRequest& request,
                                                      int64_t vocab_size) const;

 private:
  std::shared_ptr<const TokenTrie> trie();
  std::shared_ptr<const ReasoningTokens> reasoning_tokens(const ReasoningDialect& dialect);
  ConstraintCache::Compiled reserve(ConstraintCache::Compiled constraint, size_t num_key_bytes,
                                    const ApiRequest& request);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::vector<int32_t> eos_token_ids_;
  ForcedCallStyle style_;
  std::mutex trie_mutex_;
  std::shared_ptr<const TokenTrie> trie_;
  std::mutex reasoning_mutex_;
  std::shared_ptr<const ReasoningTokens> reasoning_tokens_;  // of the last dialect
  const std::shared_ptr<MaskMemory> memory_;
  const std::shared_ptr<ByteBudget> budget_;
  ConstraintCache cache_;
};

}  // namespace halley
