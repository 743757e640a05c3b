#include "halley/engine/multiple_choice.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/engine/testing/fake_causal_lm.h"
#include "halley/engine/testing/fake_tokenizer.h"
#include "halley/json/json.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kVocabSize = 41;

std::vector<EncodedChoice> random_choices(const std::vector<std::pair<size_t, int64_t>>& sizes) {
  std::mt19937_64 random(1);
  std::vector<EncodedChoice> choices;
  for (const auto& [num_ids, num_continuation] : sizes) {
    EncodedChoice choice{std::vector<int32_t>(num_ids), num_continuation};
    for (int32_t& id : choice.ids) id = static_cast<int32_t>(random() % kVocabSize);
    choices.push_back(std::move(choice));
  }
  return choices;
}

// The definition, token by token, of a model with `max_positions` positions.
double log_likelihood(const EncodedChoice& choice, size_t max_positions) {
  const size_t num_ids = choice.ids.size();
  const size_t first = num_ids - 1 > max_positions ? num_ids - 1 - max_positions : 0;
  std::vector<float> logits(kVocabSize);
  double result = 0;
  for (size_t i = num_ids - static_cast<size_t>(choice.num_continuation); i < num_ids; ++i) {
    hashed_logits({choice.ids.data() + first, i - first}, logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double{logit});
    result += double{logits[static_cast<size_t>(choice.ids[i])]} - std::log(sum);
  }
  return result;
}

TEST(ScoreChoices, IsTheDefinitionInAnyBatches) {
  const auto choices =
      random_choices({{2, 1}, {17, 3}, {33, 32}, {9, 4}, {60, 5}, {16, 15}, {40, 40 - 1}, {3, 2}});
  for (const int64_t batch_rows : {1, 16, 40, 512}) {
    FakeCausalLm model(kVocabSize, hashed_logits, 40);  // shorter than one of them
    const std::vector<double> scores = score_choices(model, choices, {{}, batch_rows});
    ASSERT_EQ(scores.size(), choices.size());
    for (size_t i = 0; i < choices.size(); ++i) {
      EXPECT_NEAR(scores[i], log_likelihood(choices[i], 40), 1e-9) << i << ", " << batch_rows;
    }
  }
}

TEST(ScoreChoices, SaysWhatIsWrongWithThem) {
  FakeCausalLm model(kVocabSize, hashed_logits, 8);
  EXPECT_THAT(
      [&] {
        score_choices(model, random_choices({{10, 9}}));
      },
      ThrowsMessage<InputError>("choice: expected a continuation of at most 8 tokens, which "
                                "the model allows, got 9."));
  EXPECT_THAT(
      [&] {
        score_choices(model, std::vector<EncodedChoice>{{{1, 41}, 1}});
      },
      ThrowsMessage<InputError>("choice: expected token ids of 0 to 40, got 41. Check that "
                                "the tokenizer belongs to the model."));
  FakeCausalLm broken(kVocabSize, [](std::span<const int32_t>, std::span<float> logits) {
    for (float& logit : logits) logit = std::numeric_limits<float>::quiet_NaN();
  });
  EXPECT_THAT(
      [&] {
        score_choices(broken, random_choices({{4, 2}}));
      },
      ThrowsMessage<CheckpointError>(
          HasSubstr("logits: expected a finite likelihood of a choice, got")));
}

ChoiceItem parse(const std::string& text) { return parse_choice_item(parse_json(text, "t"), "l"); }

// Texts as lm-eval makes them; tools/make_choice_goldens.py has the same rules in Python.
TEST(ChoiceItem, HasTheTextsOfEachLayout) {
  const auto expect = [](const std::string& text, const std::vector<Choice>& choices,
                         size_t answer) {
    const ChoiceItem item = parse(text);
    ASSERT_EQ(item.choices.size(), choices.size()) << text;
    for (size_t i = 0; i < choices.size(); ++i) {
      EXPECT_EQ(item.choices[i].context, choices[i].context);
      EXPECT_EQ(item.choices[i].continuation, choices[i].continuation);
    }
    EXPECT_EQ(item.answer, answer) << text;
  };
  expect(R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 1})",
         {{"Question: g\nAnswer:", " a"}, {"Question: g\nAnswer:", " b"}}, 1);
  expect(R"({"question": "q", "choices": {"text": ["a", "b"], "label": ["1", "2"]},
             "answerKey": "2"})",
         {{"Question: q\nAnswer:", " a"}, {"Question: q\nAnswer:", " b"}}, 1);
  expect(R"({"question": {"stem": "q", "choices": [{"text": "a", "label": "A"},
             {"text": "b", "label": "B"}]}, "answerKey": "A"})",
         {{"Question: q\nAnswer:", " a"}, {"Question: q\nAnswer:", " b"}}, 0);
  expect(R"({"activity_label": "Act", "ctx_a": "One.", "ctx_b": "\u00c9lan [x] Is",
             "endings": [" [title] Go [step] on", "a  b\u00a0"], "label": "1"})",
         {{"Act: One. Élan is", "  Go on"}, {"Act: One. Élan is", " a b"}}, 1);
  expect(R"({"ctx": "c [open\n] d", "endings": ["a [title] b", "[x[y]z"], "label": 0})",
         {{"c [open\n] d", " a. b"}, {"c [open\n] d", " z"}}, 0);
  expect(R"({"sentence": "The _ is here. ", "option1": "x", "option2": "y", "answer": "2"})",
         {{"The x", " is here."}, {"The y", " is here."}}, 1);
}

TEST(ChoiceItem, SaysWhatIsWrongWithALine) {
  const auto expect = [](const std::string& text, const std::string& message) {
    EXPECT_THAT([&] { parse(text); }, ThrowsMessage<InputError>("l: " + message)) << text;
  };
  expect("[]", "expected a JSON object, got array.");
  expect("{}",
         "expected the fields of PIQA (goal), ARC (question), HellaSwag (endings) or WinoGrande "
         "(sentence), got none of them.");
  expect(R"({"goal": "g", "sol1": "a", "label": 0})",
         "field 'sol2': expected a value, got nothing.");
  expect(R"({"goal": 3, "sol1": "a", "sol2": "b", "label": 0})",
         "field 'goal': expected text, got number.");
  expect(R"({"goal": "", "sol1": "a", "sol2": "b", "label": 0})",
         "field 'goal': expected text, got none.");
  expect(R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 2})",
         "field 'label': expected 0 to 1, got \"2\".");
  expect(R"({"sentence": "no blank", "option1": "a", "option2": "b", "answer": "1"})",
         "field 'sentence': expected a '_' with text after it, got \"no blank\".");
  expect(R"({"sentence": "end _", "option1": "a", "option2": "b", "answer": "1"})",
         "field 'sentence': expected a '_' with text after it, got \"end _\".");
  expect(R"({"ctx": "c", "endings": ["a"], "label": 0})",
         "field 'endings': expected a list of 2 to 64 choices, got one of 1.");
  expect(R"({"ctx": "c", "endings": ["a", 2], "label": 0})",
         "field 'endings': expected texts, got number.");
  expect(R"({"question": "q", "choices": ["a", "b"], "answerKey": "A"})",
         "field 'choices': expected objects, got string.");
  expect(R"({"question": "q", "choices": {"text": ["a", "b"], "label": ["A", "B"]},
             "answerKey": "C"})",
         "field 'answerKey': expected one of [A, B], got \"C\".");
}

TEST(ChoiceItem, NeedsTokensOnBothSides) {
  const FakeTokenizer tokenizer({"a", "b", "c", " "});
  const EncodedChoice choice = encode_choice(tokenizer, {"ab  ", " c"}, "l");
  EXPECT_EQ(choice.ids, tokenizer.encode("ab   c", false));
  EXPECT_EQ(choice.num_continuation,
            static_cast<int64_t>(choice.ids.size()) -
                static_cast<int64_t>(tokenizer.encode("ab", false).size()));
  EXPECT_THAT(
      [&] {
        encode_choice(tokenizer, {"  ", " c"}, "l");
      },
      ThrowsMessage<InputError>("l: expected a context and a continuation of at least one "
                                "token, got \"  \" and \" c\"."));
}

TEST(ChoiceAccuracy, CountsTheBestAndTheBestByBytes) {
  // By sums the first of each is the best; by bytes (1 and 3, 2 and 4) the second of the first
  // item.
  const std::vector<ChoiceItem> items = {{"PIQA", {{"", " a"}, {"", " bcd"}}, 1},
                                         {"PIQA", {{"", " ab"}, {"", " cdef"}}, 0}};
  const std::vector<double> scores = {-2, -3, -1, -2};  // ties count for the first
  const ChoiceAccuracy accuracy = accuracy_of(items, scores);
  EXPECT_EQ(accuracy.accuracy, 0.5);
  EXPECT_EQ(accuracy.accuracy_error, 0.5);  // sqrt(0.25 / 1)
  EXPECT_EQ(accuracy.normalized, 1);
  EXPECT_EQ(accuracy.normalized_error, 0);
}

}  // namespace
}  // namespace halley
