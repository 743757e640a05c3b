// For constraint_test.py: random texts of a schema, and whether texts fulfil it.
//
//   constraint_walk TOKENIZER_DIR
//
// Reads a line of JSON for each schema: {"schema": ..., "seed": 1, "num_walks": 5, "texts": [...]}
// ("schema" may be "json_object"; "grammar", a text, may stand instead of it). Writes a line for
// each: {"walks": [...], "accepted": [...]} or {"error": "..."}. "accepted" is where a text stops
// being one: -1 for one that is accepted.
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/constraint/grammar_constraint.h"
#include "halley/constraint/json_schema.h"
#include "halley/constraint/matcher.h"
#include "halley/constraint/text_grammar.h"
#include "halley/constraint/token_trie.h"
#include "halley/json/json.h"

namespace {

using halley::has_token;
using halley::TokenMask;

// Free choice for this many tokens, then the way out.
constexpr int kNumFreeTokens = 120;
constexpr int kNumTokensMax = 4000;

class Walker {
 public:
  Walker(const halley::Tokenizer& tokenizer, std::shared_ptr<const halley::TokenTrie> trie)
      : trie_(std::move(trie)) {
    for (const char* closer : {"\"", "}", "]", ":", ","}) {
      if (const auto id = tokenizer.id_of(closer)) closers_.push_back(*id);
    }
  }

  std::string walk(const halley::CompiledConstraint& compiled, std::mt19937_64& random) const {
    const auto constraint = compiled.start();
    std::string text;
    TokenMask allowed;
    for (int n = 0; n < kNumTokensMax; ++n) {
      if (!constraint->fill_allowed(allowed)) throw halley::InputError("a limit was passed");
      const int32_t id = choose(allowed, n >= kNumFreeTokens, random);
      if (id < 0)
        throw halley::InputError(halley::str("nothing is allowed behind ", halley::quote(text)));
      if (!constraint->accept(id)) throw halley::InputError("a limit was passed");
      if (trie_->is_eos(id)) return text;
      text += trie_->bytes_of(id);
      if (constraint->is_complete()) return text;
    }
    throw halley::InputError(halley::str("no end behind ", halley::quote(text, 400)));
  }

 private:
  int32_t choose(const TokenMask& allowed, bool must_end, std::mt19937_64& random) const {
    if (must_end || random() % 3 == 0) {
      for (const int32_t id : trie_->eos_token_ids()) {
        if (has_token(allowed, static_cast<size_t>(id))) return id;
      }
      for (const int32_t id : closers_) {
        if (!has_token(allowed, static_cast<size_t>(id))) continue;
        // A quote ends a string or begins one that it ends. Another sign may be text.
        if (id == closers_[0] || random() % 2 == 0) return id;
      }
    }
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < trie_->num_ids(); ++id) {
      if (has_token(allowed, static_cast<size_t>(id))) ids.push_back(id);
    }
    return ids.empty() ? -1 : ids[random() % ids.size()];
  }

  std::shared_ptr<const halley::TokenTrie> trie_;
  std::vector<int32_t> closers_;
};

int64_t accepted(halley::Matcher& matcher, std::string_view text) {
  halley::Matcher::State state = matcher.start();
  for (size_t i = 0; i < text.size(); ++i) {
    state = matcher.next(state, static_cast<uint8_t>(text[i]));
    if (state < 0) return static_cast<int64_t>(i);
  }
  return matcher.may_end(state) ? -1 : static_cast<int64_t>(text.size());
}

halley::Grammar grammar_of(const halley::OrderedJson& request) {
  if (request.contains("grammar")) {
    return halley::text_grammar(request.at("grammar").get<std::string>(), "grammar");
  }
  const halley::OrderedJson& schema = request.at("schema");
  return schema == "json_object" ? halley::json_object_grammar()
                                 : halley::json_schema_grammar(schema, "schema");
}

halley::OrderedJson answer(const std::string& line, const Walker& walker,
                           const std::shared_ptr<const halley::TokenTrie>& trie) {
  const halley::OrderedJson request = halley::parse_ordered_json(line, "stdin");
  halley::OrderedJson result;
  const halley::Grammar grammar = grammar_of(request);
  const auto compiled = halley::compile_constraint(trie, grammar);  // rejects what cannot begin
  halley::Matcher matcher(grammar);
  result["accepted"] = halley::OrderedJson::array();
  for (const auto& text : request.at("texts")) {
    result["accepted"].push_back(accepted(matcher, text.get<std::string>()));
  }
  std::mt19937_64 random(request.at("seed").get<uint64_t>());
  result["walks"] = halley::OrderedJson::array();
  for (int i = 0; i < request.at("num_walks").get<int>(); ++i) {
    result["walks"].push_back(walker.walk(*compiled, random));
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto tokenizer = halley::load_tokenizer(argv[1]);
  std::vector<int32_t> eos;
  for (const char* token : {"<|endoftext|>", "<|end_of_text|>"}) {
    if (const auto id = tokenizer->id_of(token)) eos.push_back(*id);
  }
  const auto trie = halley::TokenTrie::from_tokenizer(*tokenizer, eos);
  const Walker walker(*tokenizer, trie);
  std::string line;
  while (std::getline(std::cin, line)) {
    halley::OrderedJson result;
    try {
      result = answer(line, walker, trie);
    } catch (const std::exception& error) {
      result = {{"error", error.what()}};
    }
    std::cout << result.dump() << std::endl;
  }
  return 0;
}
