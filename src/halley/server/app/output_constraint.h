// Compiles a request's constraints on its output (output_format, tool_choice) for the engine.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/constraint/token_constraint.h"
#include "halley/constraint/token_trie.h"
#include "halley/server/openai/api_request.h"
#include "halley/server/openai/tool_calls.h"

namespace halley {

/// The format of the calls that tool_choice demands from the served model.
struct ForcedCallStyle {
  ToolDialect dialect = ToolDialect::kNone;  // kNone: JSON without markers
  std::vector<std::string> special_marks = {};
};

/// Whether the request demands a format of its output.
bool is_constrained(const ApiRequest& request);

/// Adds the keywords of the request's schemas that no grammar can enforce to request.ignored.
void report_unenforced(ApiRequest& request);

/// Thread-safe. Keeps the last few results, whose masks get better with use.
class ConstraintCompiler {
 public:
  ConstraintCompiler(std::shared_ptr<const Tokenizer> tokenizer, std::vector<int32_t> eos_token_ids,
                     ToolDialect dialect);

  /// Returns null for an unconstrained output. The first call for a vocabulary takes up to a
  /// second. Throws ApiError 400 with the JSON pointer if a schema is invalid or not supported.
  std::shared_ptr<const CompiledConstraint> compile(const ApiRequest& request);

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const CompiledConstraint>>;

  std::shared_ptr<const TokenTrie> trie();

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::vector<int32_t> eos_token_ids_;
  ForcedCallStyle style_;
  std::mutex trie_mutex_;
  std::shared_ptr<const TokenTrie> trie_;
  std::mutex mutex_;          // guards the list
  std::list<Entry> entries_;  // most recently used first
};

}  // namespace halley
