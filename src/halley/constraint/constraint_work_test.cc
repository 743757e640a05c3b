// Tests of masks that are made in slices, and of the memory of many grammars together.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "halley/constraint/grammar_constraint.h"
#include "halley/constraint/json_schema.h"
#include "halley/constraint/pattern.h"
#include "halley/json/json.h"

namespace halley {
namespace {

constexpr int32_t kEos = 0;

// Token 0 ends the text, 1 + b is byte b, then some of several bytes.
std::shared_ptr<const TokenTrie> small_trie() {
  std::vector<std::string> bytes = {""};
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  for (const char* more : {"ab", "aab", "abab", "\":", "{\"", "true", "  ", "\xC3\xA9", "b\"}"}) {
    bytes.emplace_back(more);
  }
  return std::make_shared<TokenTrie>(std::move(bytes), std::vector<int32_t>{kEos});
}

Grammar grammar_of_pattern(const std::string& pattern) {
  GrammarBuilder builder("grammar");
  return builder.finish(pattern_texts(builder, pattern, TextForm::kUtf8, "pattern"));
}

Grammar grammar_of_schema(std::string_view text) {
  return json_schema_grammar(parse_ordered_json(text, "schema"), "schema");
}

struct InSlices {
  int num_pauses = 0;
  bool is_within = true;

  template <typename Work>
  void finish(const Work& work) {
    ConstraintWork result = work();
    for (; result == ConstraintWork::kPaused; result = work()) ++num_pauses;
    is_within = is_within && result == ConstraintWork::kDone;
  }
};

/// Writes `text` byte by byte, once in slices of `num_steps` and once without, and compares masks.
int compare_slices(const Grammar& grammar, const MatcherLimits& limits, std::string_view text,
                   size_t num_steps) {
  const auto trie = small_trie();
  const auto whole = compile_constraint(trie, grammar, limits)->start();
  const auto sliced = compile_constraint(trie, grammar, limits)->start();
  InSlices slices;
  TokenMask expected, got;
  for (size_t i = 0; i <= text.size(); ++i) {
    const bool is_within = whole->fill_allowed(expected);
    slices.finish([&] { return sliced->fill_some(got, num_steps); });
    EXPECT_EQ(slices.is_within, is_within) << i;
    if (!is_within) return slices.num_pauses;
    EXPECT_EQ(got, expected) << i;
    if (i == text.size()) break;
    const int32_t id = 1 + static_cast<uint8_t>(text[i]);
    EXPECT_TRUE(whole->accept(id)) << i;
    slices.finish([&] { return sliced->accept_some(id, num_steps); });
    EXPECT_EQ(sliced->is_complete(), whole->is_complete()) << i;
  }
  EXPECT_TRUE(slices.is_within);
  return slices.num_pauses;
}

TEST(ConstraintWork, SlicesOfAnySizeGiveTheSameMasks) {
  const Grammar schema = grammar_of_schema(
      R"({"type": "object", "required": ["ab", "n"], "properties": {
          "ab": {"type": "string", "maxLength": 5}, "n": {"enum": [true, "aab", 12]}}})");
  const Grammar pattern = grammar_of_pattern("^(a|b|ab|ba|aab){1,40}c$");
  for (const size_t num_steps : {size_t{1}, size_t{7}, size_t{100}}) {
    EXPECT_GT(compare_slices(schema, {}, R"({"ab": "aab", "n": true})", num_steps) +
                  compare_slices(pattern, {}, "aababbaabaabc", num_steps),
              0);
  }
}

TEST(ConstraintWork, WithoutStepsIsDoneWhereItIsKnown) {
  const auto compiled = compile_constraint(small_trie(), grammar_of_pattern("^ab[cd]*$"));
  const auto first = compiled->start(), second = compiled->start();
  TokenMask mask, known;
  EXPECT_EQ(first->fill_some(mask, 0), ConstraintWork::kPaused);
  EXPECT_EQ(first->accept_some(1 + 'a', 0), ConstraintWork::kPaused);
  ASSERT_TRUE(first->fill_allowed(mask));
  ASSERT_TRUE(first->accept(1 + 'a'));
  EXPECT_EQ(second->fill_some(known, 0), ConstraintWork::kDone);
  EXPECT_EQ(known, mask);
  EXPECT_EQ(second->accept_some(1 + 'a', 0), ConstraintWork::kDone);
  EXPECT_EQ(second->fill_some(known, 0), ConstraintWork::kPaused);
  EXPECT_EQ(second->accept_some(1 + 'x', 0), ConstraintWork::kPaused) << "nobody has tried it";
}

TEST(ConstraintWork, SlicesGoOnInANewCacheToo) {
  MatcherLimits limits;
  limits.memory_bytes_max = 150'000;
  const Grammar grammar = grammar_of_schema(R"({"type": "string", "minLength": 900})");
  EXPECT_GT(compare_slices(grammar, limits, "\"" + std::string(900, 'a') + "\"", 10), 900);
}

TEST(ConstraintWork, SlicesPassTheLimitsThatTheWholePasses) {
  MatcherLimits limits;
  limits.steps_max = 3000;
  EXPECT_GT(compare_slices(grammar_of_pattern("^((a{0,50}){0,50}){0,50}$"), limits,
                           std::string(60, 'a'), 500),
            0);
}

TEST(MaskMemory, IsReplacedWhereAllTogetherHaveMoreThanTheirBound) {
  constexpr size_t kNumBytesMax = size_t{12} << 20;
  const auto memory = std::make_shared<MaskMemory>(kNumBytesMax);
  const auto trie = small_trie();
  const std::string text = "\"" + std::string(3000, 'a');
  std::vector<std::unique_ptr<TokenConstraint>> bounded;
  const auto write = [&](TokenConstraint& constraint) {
    TokenMask mask;
    for (const char c : text) {
      EXPECT_TRUE(constraint.fill_allowed(mask));
      EXPECT_TRUE(constraint.accept(1 + static_cast<uint8_t>(c)));
    }
    EXPECT_TRUE(constraint.fill_allowed(mask));
    return mask;
  };
  TokenMask expected;
  for (int i = 0; i < 20; ++i) {
    const Grammar grammar = grammar_of_schema(R"({"type": "string", "minLength": 2999})");
    bounded.push_back(compile_constraint(trie, grammar, {}, memory)->start());
    const TokenMask mask = write(*bounded.back());
    if (i == 0) expected = write(*compile_constraint(trie, grammar)->start());
    EXPECT_EQ(mask, expected) << i;
    // Those that go on no more keep what they have.
    EXPECT_LE(memory->num_bytes(), kNumBytesMax + 20 * MaskMemory::kShareBytesMin) << i;
  }
  bounded.clear();
  EXPECT_EQ(memory->num_bytes(), 0u);
  EXPECT_EQ(memory->share_bytes(), std::numeric_limits<size_t>::max());
}

}  // namespace
}  // namespace halley
