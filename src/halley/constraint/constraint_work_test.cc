// Tests of masks that are made in slices, and of the memory of many grammars together.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "halley/constraint/grammar_constraint.h"
#include "halley/constraint/json_schema.h"
#include "halley/constraint/pattern.h"
#include "halley/json/json.h"

namespace halley {
namespace {

constexpr int32_t kEos = 0;

// Token 0 ends the text, 1 + b is byte b, then some of several bytes. The last of `num_ids` are
// never allowed, but have their bits in every mask.
std::shared_ptr<const TokenTrie> small_trie(size_t num_ids = 0) {
  std::vector<std::string> bytes = {""};
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  for (const char* more : {"ab", "aab", "abab", "\":", "{\"", "true", "  ", "\xC3\xA9", "b\"}"}) {
    bytes.emplace_back(more);
  }
  bytes.resize(std::max(bytes.size(), num_ids));
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
/// `is_within` says whether all of it is within the limits.
InSlices compare_slices(const Grammar& grammar, const MatcherLimits& limits, std::string_view text,
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
    if (!is_within) return slices;
    EXPECT_EQ(got, expected) << i;
    if (i == text.size()) break;
    const int32_t id = 1 + static_cast<uint8_t>(text[i]);
    EXPECT_TRUE(whole->accept(id)) << i;
    slices.finish([&] { return sliced->accept_some(id, num_steps); });
    EXPECT_EQ(sliced->is_complete(), whole->is_complete()) << i;
  }
  EXPECT_TRUE(slices.is_within);
  return slices;
}

TEST(ConstraintWork, SlicesOfAnySizeGiveTheSameMasks) {
  const Grammar schema = grammar_of_schema(
      R"({"type": "object", "required": ["ab", "n"], "properties": {
          "ab": {"type": "string", "maxLength": 5}, "n": {"enum": [true, "aab", 12]}}})");
  const Grammar pattern = grammar_of_pattern("^(a|b|ab|ba|aab){1,40}c$");
  for (const size_t num_steps : {size_t{1}, size_t{7}, size_t{100}}) {
    const InSlices of_schema = compare_slices(schema, {}, R"({"ab": "aab", "n": true})", num_steps);
    const InSlices of_pattern = compare_slices(pattern, {}, "aababbaabaabc", num_steps);
    EXPECT_TRUE(of_schema.is_within && of_pattern.is_within);
    EXPECT_GT(of_schema.num_pauses + of_pattern.num_pauses, 0);
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
  limits.memory_bytes_max = 400'000;
  // All its masks need 1 MB.
  const Grammar grammar = grammar_of_schema(R"({"type": "string", "minLength": 150})");
  const InSlices compared =
      compare_slices(grammar, limits, "\"" + std::string(150, 'a') + "\"", 10);
  EXPECT_TRUE(compared.is_within);
  EXPECT_GT(compared.num_pauses, 150);
}

TEST(ConstraintWork, SlicesPassTheLimitsThatTheWholePasses) {
  MatcherLimits limits;
  limits.steps_max = 3000;
  const InSlices compared = compare_slices(grammar_of_pattern("^((a{0,50}){0,50}){0,50}$"), limits,
                                           std::string(60, 'a'), 500);
  EXPECT_FALSE(compared.is_within);
  EXPECT_GT(compared.num_pauses, 0);
}

// Writes `text` byte by byte; returns the mask behind it.
TokenMask write(TokenConstraint& constraint, std::string_view text) {
  TokenMask mask;
  for (const char c : text) {
    EXPECT_TRUE(constraint.fill_allowed(mask));
    EXPECT_TRUE(constraint.accept(1 + static_cast<uint8_t>(c)));
  }
  EXPECT_TRUE(constraint.fill_allowed(mask));
  return mask;
}

TEST(MaskMemory, IsReplacedWhereAllTogetherHaveMoreThanTheirBound) {
  constexpr size_t kNumBytesMax = size_t{2} << 20, kNumConstraints = 10;
  // Masks of 12 KB, so that a few hundred of them are more than a share.
  const auto trie = small_trie(100'000);
  const std::string text(250, 'a');
  const auto compile = [&](std::shared_ptr<MaskMemory> memory) {
    return compile_constraint(trie, grammar_of_pattern("^[ab]{1,250}c$"), {}, std::move(memory));
  };
  const auto alone = compile(nullptr);
  const TokenMask expected = write(*alone->start(), text);
  ASSERT_GT(kNumConstraints * alone->num_bytes(),
            2 * (kNumBytesMax + kNumConstraints * MaskMemory::kShareBytesMin));

  const auto memory = std::make_shared<MaskMemory>(kNumBytesMax);
  std::vector<std::unique_ptr<TokenConstraint>> bounded;
  for (size_t i = 0; i < kNumConstraints; ++i) {
    bounded.push_back(compile(memory)->start());
    EXPECT_EQ(write(*bounded.back(), text), expected) << i;
    // Those that go on no more keep what they have.
    EXPECT_LE(memory->num_bytes(), kNumBytesMax + kNumConstraints * MaskMemory::kShareBytesMin)
        << i;
  }
  bounded.clear();
  EXPECT_EQ(memory->num_bytes(), 0u);
  EXPECT_EQ(memory->share_bytes(), std::numeric_limits<size_t>::max());
}

}  // namespace
}  // namespace halley
