// Tests of masks against their definition, limits, vocabularies, and requests that share a grammar.
// tests/constraint compares the meaning of schemas with other software.
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/checkpoint/tokenizer/utf8.h"
#include "halley/constraint/grammar_constraint.h"
#include "halley/constraint/json_schema.h"
#include "halley/constraint/mask_cache.h"
#include "halley/constraint/pattern.h"
#include "halley/constraint/tool_call.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int32_t kEos = 0;

// A vocabulary with EOS, all single bytes, pieces of JSON, split characters, and runs longer than
// the plain ones.
std::vector<std::string> test_pieces() {
  std::vector<std::string> pieces = {"<eos>"};
  for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
  for (const char* piece : {"{\"",       "\":",       "\": \"",   "\", \"",
                            "\"}",       "}",         "},",       "]]",
                            "true",      "fal",       "se",       "null",
                            "12",        "0.5",       "e+1",      "  ",
                            "\n  ",      "name",      "na",       "ame\"",
                            "\\n",       "\\u00",     "e9",       "\xC3\xA9",
                            "\xE2\x82",  "\x82\xAC",  "\xAC",     "\xF0\x9F\x98\x80",
                            "a\xF0\x9F", "\x98\x80z", "abcdefgh", "\xE2\x82\xAC\xE2\x82\xAC",
                            "<|x|>",     "\x7F",      "[[[[",     "\"\"",
                            ", "}) {
    pieces.emplace_back(piece);
  }
  pieces.emplace_back(40, 'x');
  pieces.emplace_back(TokenTrie::kTokenBytesMax + 1, 'y');
  pieces.emplace_back();  // a hole
  return pieces;
}

std::shared_ptr<const TokenTrie> test_trie() {
  return std::make_shared<const TokenTrie>(test_pieces(), std::vector<int32_t>{kEos});
}

Grammar schema_grammar(const std::string& schema) {
  return json_schema_grammar(parse_ordered_json(schema, "schema"), "schema");
}

Grammar pattern_grammar(const std::string& pattern) {
  GrammarBuilder builder("grammar");
  return builder.finish(pattern_texts(builder, pattern, TextForm::kUtf8, "pattern"));
}

// The allowed tokens by definition: tries them one by one.
TokenMask mask_by_definition(Matcher& matcher, Matcher::State state, const TokenTrie& trie) {
  TokenMask mask(trie.num_mask_words(), 0);
  for (int32_t id = 0; id < trie.num_ids(); ++id) {
    const std::string_view bytes = trie.bytes_of(id);
    Matcher::State at = state;
    for (const char byte : bytes) {
      if (at >= 0) at = matcher.next(at, static_cast<uint8_t>(byte));
    }
    const bool is_writable = !bytes.empty() && bytes.size() <= TokenTrie::kTokenBytesMax;
    const bool is_allowed = trie.is_eos(id) ? matcher.may_end(state) : is_writable && at >= 0;
    const auto i = static_cast<size_t>(id);
    if (is_allowed) mask[i / 64] |= uint64_t{1} << (i % 64);
  }
  return mask;
}

std::vector<int32_t> ids_of(const TokenMask& mask) {
  std::vector<int32_t> ids;
  for (size_t id = 0; id < mask.size() * 64; ++id) {
    if (has_token(mask, id)) ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

class MasksOfSchema : public testing::TestWithParam<const char*> {};

TEST_P(MasksOfSchema, AreThoseOfTheDefinitionOnEveryWalk) {
  const Grammar grammar = schema_grammar(GetParam());
  const auto trie = test_trie();
  MaskCache cache(grammar, *trie, {});
  Matcher matcher(grammar);
  std::mt19937 random(7);
  for (int walk = 0; walk < 20; ++walk) {
    Matcher::State state = cache.matcher().start();
    Matcher::State expected_state = matcher.start();
    for (int n = 0; n < 30; ++n) {
      TokenMask mask;
      ASSERT_EQ(cache.fill(state, mask), state);
      ASSERT_EQ(ids_of(mask), ids_of(mask_by_definition(matcher, expected_state, *trie)));
      const std::vector<int32_t> ids = ids_of(mask);
      const int32_t id = ids[random() % ids.size()];
      if (id == kEos) break;
      state = cache.next(state, id);
      for (const char byte : trie->bytes_of(id)) {
        expected_state = matcher.next(expected_state, static_cast<uint8_t>(byte));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Schemas, MasksOfSchema,
    testing::Values(R"({"type": "string"})", R"({"type": "string", "maxLength": 9})",
                    R"({"type": "string", "minLength": 50, "maxLength": 100})",
                    R"({"type": "string", "pattern": "^[a-f]+é*$"})", "true",
                    R"({"properties": {"name": {"type": "string"}, "na": {"type": "null"}},
                        "additionalProperties": {"type": "number"}})",
                    R"({"type": "array", "items": {"enum": [true, "é€", 12]}, "maxItems": 3})"));

TEST(Matcher, StateOfAPlainStringIsOneState) {
  const Grammar grammar = schema_grammar(R"({"type": "string"})");
  Matcher matcher(grammar);
  const Matcher::State inside = matcher.next(matcher.start(), '"');
  EXPECT_EQ(matcher.next(inside, 'a'), inside);
  EXPECT_EQ(matcher.next(matcher.next(inside, 0xC3), 0xA9), inside);
}

TEST(Matcher, KeepsTheWayToTheEndWithinTheDepth) {
  MatcherLimits limits;
  limits.frames_max = 10;
  const Grammar grammar = schema_grammar("true");
  Matcher matcher(grammar, limits);
  Matcher::State state = matcher.start();
  int depth = 0;
  for (Matcher::State next = state; (next = matcher.next(state, '[')) >= 0; state = next) ++depth;
  EXPECT_GE(depth, 5);
  EXPECT_LE(depth, 10);
  for (; depth > 0 && state >= 0; --depth) state = matcher.next(state, ']');
  ASSERT_GE(state, 0);
  EXPECT_TRUE(matcher.may_end(state));
}

TEST(Matcher, SaysThatAnAmbiguousGrammarIsTooComplex) {
  // After n letters any split of them into groups is possible.
  const Grammar grammar = pattern_grammar("^((a{0,500}){0,500}){0,500}$");
  Matcher matcher(grammar);
  Matcher::State state = matcher.start();
  for (int n = 0; n < 1000 && state >= 0; ++n) state = matcher.next(state, 'a');
  EXPECT_EQ(state, Matcher::kTooComplex);
}

TEST(Matcher, BoundsMemory) {
  MatcherLimits limits;
  limits.memory_bytes_max = 100'000;
  const Grammar grammar = schema_grammar(R"({"type": "string", "maxLength": 100000})");
  Matcher matcher(grammar, limits);
  Matcher::State state = matcher.next(matcher.start(), '"');
  for (int n = 0; n < 10'000 && state >= 0; ++n) state = matcher.next(state, 'a');
  EXPECT_EQ(state, Matcher::kFull);
  EXPECT_LT(matcher.memory_bytes(), 2 * limits.memory_bytes_max);
}

TEST(Grammar, CountsExactlyInNestedRepetitions) {
  const Grammar grammar = pattern_grammar("^(?:ab{2,3}){2}c?$");
  const auto accepts = [&](std::string_view text) {
    Matcher matcher(grammar);
    Matcher::State state = matcher.start();
    for (size_t i = 0; i < text.size() && state >= 0; ++i) {
      state = matcher.next(state, static_cast<uint8_t>(text[i]));
    }
    return state >= 0 && matcher.may_end(state);
  };
  EXPECT_TRUE(accepts("abbabb") && accepts("abbbabbc") && accepts("abbabbbc"));
  EXPECT_FALSE(accepts("abb") || accepts("ababb") || accepts("abbbbabb") || accepts("abbabbabb"));
}

TEST(CompiledConstraint, RejectsASchemaDeeperThanItsLimits) {
  std::string schema = R"({"type": "string"})";
  for (int i = 0; i < 20; ++i) {
    schema = str(R"({"type": "array", "minItems": 2, "items": )", schema, "}");
  }
  MatcherLimits limits;
  limits.frames_max = 10;
  try {
    compile_constraint(test_trie(), schema_grammar(schema), limits);
    FAIL() << "was accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("schema: expected an output that begins in at most 2048 ways "
                          "and needs at most some 10 nested values"));
  }
}

// Writes a text by the longest allowed tokens. Returns the last token's mask.
TokenMask write(TokenConstraint& constraint, const TokenTrie& trie, std::string_view text) {
  TokenMask mask;
  EXPECT_TRUE(constraint.fill_allowed(mask));
  while (!text.empty()) {
    int32_t best = -1;
    for (const int32_t id : ids_of(mask)) {
      const bool is_next = !trie.is_eos(id) && text.starts_with(trie.bytes_of(id));
      if (is_next && (best < 0 || trie.bytes_of(id).size() > trie.bytes_of(best).size())) best = id;
    }
    if (best < 0) {
      ADD_FAILURE() << "no token for " << quote(text);
      return mask;
    }
    EXPECT_TRUE(constraint.accept(best));
    EXPECT_TRUE(constraint.fill_allowed(mask));
    text.remove_prefix(trie.bytes_of(best).size());
  }
  return mask;
}

TEST(TokenConstraint, AllowsEosExactlyAtTheEnd) {
  const auto trie = test_trie();
  const auto compiled = compile_constraint(trie, schema_grammar(R"({"type": "integer"})"));
  const auto constraint = compiled->start();
  EXPECT_FALSE(has_token(write(*constraint, *trie, ""), kEos));
  EXPECT_FALSE(has_token(write(*constraint, *trie, "-"), kEos));
  EXPECT_TRUE(has_token(write(*constraint, *trie, "12"), kEos));
  EXPECT_FALSE(constraint->is_complete());  // digits may follow
  EXPECT_TRUE(constraint->accept(kEos));
  EXPECT_TRUE(constraint->is_complete());
  EXPECT_THAT(ids_of(write(*constraint, *trie, "")), IsEmpty());
}

TEST(TokenConstraint, IsCompleteIfNothingMayFollow) {
  const auto trie = test_trie();
  const auto compiled = compile_constraint(trie, json_object_grammar());
  const auto constraint = compiled->start();
  write(*constraint, *trie, "{\"a\": [1, {}]");
  EXPECT_FALSE(constraint->is_complete());
  EXPECT_THAT(ids_of(write(*constraint, *trie, "}")), testing::ElementsAre(kEos));
  EXPECT_TRUE(constraint->is_complete());
}

TEST(TokenConstraint, BoundsWhiteSpace) {
  const auto trie = test_trie();
  const auto compiled = compile_constraint(trie, json_object_grammar());
  const auto constraint = compiled->start();
  const TokenMask mask = write(*constraint, *trie, "{\n" + std::string(20, ' '));
  EXPECT_FALSE(has_token(mask, size_t{1} + ' '));
  EXPECT_TRUE(has_token(mask, size_t{1} + '"'));
}

TEST(TokenConstraint, GoesOnInANewCacheIfOneIsFull) {
  MatcherLimits limits;
  limits.memory_bytes_max = 400'000;
  const auto trie = test_trie();
  const std::string schema = R"({"type": "string", "minLength": 300, "maxLength": 301})";
  const auto compiled = compile_constraint(trie, schema_grammar(schema), limits);
  const auto first = compiled->start();
  const auto second = compiled->start();
  write(*second, *trie, "\"abc");  // idle while the first one uses many caches
  EXPECT_FALSE(has_token(write(*first, *trie, "\"" + std::string(299, 'a')), size_t{1} + '"'));
  EXPECT_TRUE(has_token(write(*first, *trie, "a"), size_t{1} + '"'));
  write(*second, *trie, std::string(297, 'b') + "\"");
  EXPECT_TRUE(second->is_complete());
}

TEST(TokenConstraint, SaysThatALimitWasPassed) {
  const auto trie = test_trie();
  const auto compiled = compile_constraint(trie, pattern_grammar("^((a{0,500}){0,500}){0,500}$"));
  const auto constraint = compiled->start();
  TokenMask mask;
  bool is_within = true;
  for (int n = 0; n < 1000 && is_within; ++n) {
    is_within = constraint->fill_allowed(mask) && constraint->accept(1 + 'a');
  }
  EXPECT_FALSE(is_within);
  EXPECT_FALSE(constraint->fill_allowed(mask));
  EXPECT_FALSE(constraint->is_complete());
}

TEST(CompiledConstraint, MayBeSharedByThreads) {
  MatcherLimits limits;
  limits.memory_bytes_max = 400'000;
  const auto trie = test_trie();
  const auto compiled = compile_constraint(trie, json_object_grammar(), limits);
  const std::string text = R"({"a": [1, 2.5, {"b": "c\n"}], "d": )" + std::string(30, '[') + "0";
  std::vector<std::thread> threads;
  std::vector<TokenMask> masks(4);
  for (TokenMask& mask : masks) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) mask = write(*compiled->start(), *trie, text);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const TokenMask& mask : masks) EXPECT_EQ(mask, masks[0]);
}

TEST(TokenTrie, LeavesOutHolesAndWhatIsTooLong) {
  const auto trie = test_trie();
  const size_t num_tokens = trie->plain().tokens.size() + trie->other().tokens.size();
  EXPECT_EQ(num_tokens, static_cast<size_t>(trie->num_ids()) - 3);  // EOS too
}

// Whether `text` is a prefix of a text of the grammar, or one itself.
enum class Fit { kNot, kBeginning, kWhole };
Fit fit_of(const Grammar& grammar, std::string_view text) {
  Matcher matcher(grammar);
  Matcher::State state = matcher.start();
  for (size_t i = 0; i < text.size() && state >= 0; ++i) {
    state = matcher.next(state, static_cast<uint8_t>(text[i]));
  }
  if (state < 0) return Fit::kNot;
  return matcher.may_end(state) ? Fit::kWhole : Fit::kBeginning;
}

std::vector<ToolSignature> two_tools() {
  const auto schema = parse_ordered_json(
      R"({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})",
      "schema");
  return {{"weather", schema, "tools[0]"}, {"time.now", nullptr, "tools[1]"}};
}

TEST(ToolCall, OfLlama3IsOneObject) {
  const Grammar grammar = tool_call_grammar(two_tools(), {ToolCallForm::kLlama3, true});
  const std::string call = R"({"name": "weather", "parameters": {"city": "Oslo"}})";
  EXPECT_EQ(fit_of(grammar, call), Fit::kWhole);
  EXPECT_EQ(fit_of(grammar, call + "\n"), Fit::kNot);
  EXPECT_EQ(fit_of(grammar, R"({"name": "time.now", "parameters": {"a": 1}})"), Fit::kWhole);
  EXPECT_EQ(fit_of(grammar, R"({"name": "weather", "parameters": {}})"), Fit::kNot);
  EXPECT_EQ(fit_of(grammar, R"({"name": "other)"), Fit::kNot);
}

TEST(ToolCall, OfHermesIsBetweenTagsOnceOrMoreOften) {
  const std::string call =
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
  const Grammar several = tool_call_grammar(two_tools(), {ToolCallForm::kHermes, true});
  EXPECT_EQ(fit_of(several, call), Fit::kWhole);
  EXPECT_EQ(fit_of(several, call + "\n" + call), Fit::kWhole);
  EXPECT_EQ(fit_of(several, call + "\n<tool"), Fit::kBeginning);
  const Grammar one = tool_call_grammar(two_tools(), {ToolCallForm::kHermes, false});
  EXPECT_EQ(fit_of(one, call), Fit::kWhole);
  EXPECT_EQ(fit_of(one, call + "\n"), Fit::kNot);
}

TEST(ToolCall, OfMistralIsAListAfterItsMarker) {
  const std::string call = R"({"name": "weather", "arguments": {"city": "Oslo"}})";
  const Grammar several = tool_call_grammar(two_tools(), {ToolCallForm::kMistral, true});
  EXPECT_EQ(fit_of(several, "[TOOL_CALLS][" + call + "]"), Fit::kWhole);
  EXPECT_EQ(fit_of(several, "[TOOL_CALLS][" + call + ", " + call), Fit::kBeginning);
  EXPECT_EQ(fit_of(several, "[TOOL_CALLS][]"), Fit::kNot);
  EXPECT_EQ(fit_of(several, "[" + call + "]"), Fit::kNot);
  const Grammar one = tool_call_grammar(two_tools(), {ToolCallForm::kMistral, false});
  EXPECT_EQ(fit_of(one, "[TOOL_CALLS][" + call + ","), Fit::kNot);
}

TEST(ToolCall, MarkersThatAreSpecialTokensAreNoText) {
  const std::string call = R"([{"name": "time.now", "arguments": {"a": ")";
  const Grammar grammar =
      tool_call_grammar(two_tools(), {ToolCallForm::kMistral, false, {"[TOOL_CALLS]"}});
  const std::string mark = bytes_of_special("[TOOL_CALLS]");
  EXPECT_EQ(fit_of(grammar, mark + call), Fit::kBeginning);
  EXPECT_EQ(fit_of(grammar, "[TOOL_CALLS]" + call), Fit::kNot);
  // Not even in a string, where its name as text is allowed.
  EXPECT_EQ(fit_of(grammar, mark + call + "[TOOL_CALLS]"), Fit::kBeginning);
  EXPECT_EQ(fit_of(grammar, mark + call + mark), Fit::kNot);
}

TEST(ToolCall, NeedsAToolWithAName) {
  const auto message_of = [](const std::vector<ToolSignature>& tools) {
    try {
      tool_call_grammar(tools, {ToolCallForm::kHermes, true});
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("was accepted");
  };
  EXPECT_THAT(message_of({}), HasSubstr("tools: expected 1 to 128 tools, got 0"));
  EXPECT_THAT(message_of({{"a b", nullptr, "tools[0]"}}),
              HasSubstr("tools[0]: expected a function name of 1 to 64 letters"));
  EXPECT_THAT(message_of({{"f", OrderedJson(3), "tools[0].parameters"}}),
              HasSubstr("tools[0].parameters#: expected a schema"));
}

std::filesystem::path source_dir() { return HALLEY_SOURCE_DIR; }

class TokenBytes : public testing::TestWithParam<const char*> {};

TEST_P(TokenBytes, JoinedAreWhatTheTokenizerDecodes) {
  const auto tokenizer = load_tokenizer(source_dir() / GetParam());
  const std::vector<std::string> bytes = token_bytes_of(*tokenizer);
  ASSERT_THAT(bytes, SizeIs(tokenizer->num_ids()));
  // A decoder may strip a space at the beginning of a text.
  const int32_t letter = *tokenizer->id_of("e");
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::vector<int32_t> ids = {letter};
    std::string joined = tokenizer->decode(ids, false);
    for (int n = 0; n < 6; ++n) {
      const auto id = static_cast<int32_t>(random() % bytes.size());
      if (tokenizer->is_special(id)) {
        EXPECT_EQ(bytes[static_cast<size_t>(id)], "");
        continue;
      }
      ids.push_back(id);
      joined += bytes[static_cast<size_t>(id)];
    }
    std::string expected;
    LossyUtf8 utf8;
    utf8.push(joined, expected);
    utf8.finish(expected);
    EXPECT_EQ(tokenizer->decode(ids, false), expected) << str(ids);
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, TokenBytes,
                         testing::Values("models/demo-21m", "testdata/tokenizers/gpt2",
                                         "testdata/tokenizers/llama3_style",
                                         "testdata/tokenizers/qwen2_style"));

TEST(TokenBytes, OfByteTokensAreBytes) {
  const auto tokenizer = load_tokenizer(source_dir() / "testdata/tokenizers/spm_own/bpe");
  const std::vector<std::string> bytes = token_bytes_of(*tokenizer);
  for (int byte = 0; byte < 256; ++byte) {
    const char* digits = "0123456789ABCDEF";
    const std::string token = {'<', '0', 'x', digits[byte / 16], digits[byte % 16], '>'};
    const auto id = tokenizer->id_of(token);
    ASSERT_TRUE(id) << token;
    EXPECT_EQ(bytes[static_cast<size_t>(*id)], std::string(1, static_cast<char>(byte)));
  }
  const auto space = tokenizer->id_of("\xE2\x96\x81");
  ASSERT_TRUE(space);
  EXPECT_EQ(bytes[static_cast<size_t>(*space)], " ");
}

}  // namespace
}  // namespace halley
