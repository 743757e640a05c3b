#include "halley/checkpoint/tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/sentencepiece_tokenizer.h"
#include "halley/json/json.h"

namespace halley {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path kSourceDir = HALLEY_SOURCE_DIR;

// A tokenizer.json with a tiny model; `members` override or add to it.
Json tiny_file(const char* members = "{}") {
  Json file = parse_json(R"({"version": "1.0", "model": {"type": "BPE", "unk_token": "<unk>",
      "vocab": {"<unk>": 0, "a": 1, "b": 2, "ab": 3, " ": 4}, "merges": [["a", "b"]]}})",
                         "tiny");
  file.update(parse_json(members, "members"));
  return file;
}

std::unique_ptr<Tokenizer> load(const Json& file) {
  return parse_tokenizer_json(file.dump(), "tiny.json");
}

template <typename Expected>
void expect_rejected(const Json& file, const std::string& text) {
  try {
    load(file);
    FAIL() << "loaded: " << file.dump();
  } catch (const Expected& error) {
    EXPECT_THAT(error.what(), HasSubstr(text));
    EXPECT_THAT(error.what(), HasSubstr("tiny.json"));
  }
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(TokenizerJson, RejectsOtherModelsByName) {
  for (const char* type : {"Unigram", "WordPiece", "WordLevel"}) {
    Json file = tiny_file();
    file["model"]["type"] = type;
    expect_rejected<UnsupportedError>(file, str("model type \"", type, "\" is not supported"));
  }
}

TEST(TokenizerJson, RejectsUnknownComponentsByName) {
  for (const char* member : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    Json file = tiny_file();
    file[member] = {{"type", "Wondrous"}};
    expect_rejected<UnsupportedError>(file, str(member, ": the "));
    expect_rejected<UnsupportedError>(file, "\"Wondrous\" is not supported");
  }
  expect_rejected<UnsupportedError>(tiny_file(R"({"normalizer": {"type": "Precompiled"}})"),
                                    "Use the model's tokenizer.model");
}

TEST(TokenizerJson, RejectsDropout) {
  Json file = tiny_file();
  file["model"]["dropout"] = 0.1;
  expect_rejected<UnsupportedError>(file, "model.dropout: BPE dropout is not supported");
}

TEST(TokenizerJson, NamesTheFieldThatIsWrong) {
  const auto with_model = [](const char* members) {
    Json file = tiny_file();
    file["model"].update(parse_json(members, "members"));
    return file;
  };
  expect_rejected<InputError>(with_model(R"({"vocab": [1]})"), "model.vocab: expected an object");
  expect_rejected<InputError>(with_model(R"({"vocab": {"a": -1}})"), "for token \"a\"");
  expect_rejected<InputError>(with_model(R"({"vocab": {"a": 99999999}})"), "got 99999999");
  expect_rejected<InputError>(with_model(R"({"vocab": {"a": 1, "b": 1}})"), "the same id 1");
  expect_rejected<InputError>(with_model(R"({"merges": [["a", "zz"]]})"), "got \"zz\"");
  expect_rejected<InputError>(with_model(R"({"merges": ["a b c"]})"), "model.merges[0]: expected");
  Json without = tiny_file();
  without["model"].erase("vocab");
  expect_rejected<InputError>(without, "model.vocab: expected a value, got nothing");
  expect_rejected<InputError>(tiny_file(R"({"model": 3})"),
                              "model: expected an object, got number");
  expect_rejected<UnsupportedError>(tiny_file(R"({"version": "2.0"})"), "expected \"1.0\"");
}

TEST(TokenizerJson, RejectsAddedTokensThatContradict) {
  expect_rejected<InputError>(tiny_file(R"({"added_tokens": [{"id": 9, "content": "ab"}]})"),
                              "expected token \"ab\" to have one id, got 9 here and 3");
  expect_rejected<InputError>(tiny_file(R"({"added_tokens": [{"id": 1, "content": "<s>"}]})"),
                              "expected an id that no other token has, got 1");
}

TEST(TokenizerJson, RejectsPostProcessorsWithWrongIds) {
  expect_rejected<InputError>(
      tiny_file(R"({"post_processor": {"type": "BertProcessing", "sep": ["x", 77],
                    "cls": ["y", 1]}})"),
      "expected an id of the vocabulary (0 to 4)");
  expect_rejected<InputError>(
      tiny_file(R"({"post_processor": {"type": "TemplateProcessing", "special_tokens": {},
                    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}], "pair": []}})"),
      "expected a token of special_tokens, got \"<s>\"");
}

TEST(TokenizerJson, SaysWhereTheJsonIsBroken) {
  EXPECT_THAT(message_of([] { parse_tokenizer_json("{\"model\": {\"vocab\": {\"a\" 1}}}", "x"); }),
              HasSubstr("x: not valid JSON at byte"));
}

TEST(TokenizerJson, ReadsEscapedTextsInBothFormsOfMerges) {
  const char* text = R"({"model": {"type": "BPE", "vocab": {"\u00e4": 0, "\"": 1, "\u00e4\"": 2,
      "\ud83d\ude00": 3}, "merges": ["#version: 0.2", "\u00e4 \""]}})";
  const auto tokenizer = parse_tokenizer_json(text, "x");
  EXPECT_EQ(tokenizer->encode("\xC3\xA4\"\xF0\x9F\x98\x80", false), (std::vector<int32_t>{2, 3}));
}

TEST(TokenizerJson, RejectsTextThatIsNotUtf8AndNegativeIds) {
  const auto tokenizer = load(tiny_file());
  EXPECT_THAT(message_of([&] { tokenizer->encode("a\xFF", false); }), HasSubstr("valid UTF-8"));
  EXPECT_THAT(message_of([&] { tokenizer->decode(std::vector<int32_t>{-1}, false); }),
              HasSubstr("expected an id of at least 0, got -1"));
}

TEST(TokenizerJson, GivesNoTextForIdsBehindTheVocabulary) {
  const auto tokenizer = load(tiny_file());
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{0, 5, 1, 1 << 30}, false),
            tokenizer->decode(std::vector<int32_t>{0, 1}, false));
}

TEST(TokenizerJson, StopsAPatternThatBacktracksForever) {
  Json file = tiny_file();
  file["pre_tokenizer"] = {{"type", "Split"},
                           {"pattern", {{"Regex", "(?:a|aa)+[bc]"}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  const auto tokenizer = load(file);
  EXPECT_THAT(message_of([&] { tokenizer->encode(std::string(5000, 'a'), false); }),
              HasSubstr("too much time or memory"));
}

TEST(TokenizerJson, RejectsPatternsByTheirConstruct) {
  const auto with_pattern = [](const char* pattern) {
    Json file = tiny_file();
    file["pre_tokenizer"] = {{"type", "Split"},
                             {"pattern", {{"Regex", pattern}}},
                             {"behavior", "Isolated"},
                             {"invert", false}};
    return file;
  };
  expect_rejected<UnsupportedError>(with_pattern("(?~a)"), "the construct \"(?~\"");
  expect_rejected<UnsupportedError>(with_pattern("(*LIMIT_MATCH=1)"), "the construct \"(*\"");
  expect_rejected<UnsupportedError>(with_pattern("\\N"), "the construct \"\\\\N\"");
  expect_rejected<InputError>(with_pattern("\\p{Martian}"), "got \"Martian\"");
  expect_rejected<InputError>(with_pattern("(a"), "expected ) for every (");
  expect_rejected<InputError>(with_pattern("[a"), "expected ] at the end of a set");
  expect_rejected<InputError>(with_pattern("+a"), "something to repeat");
}

TEST(TokenizerJson, EncodesAMegabyteWithoutSpaces) {
  const auto tokenizer = load(tiny_file());
  std::string text;
  for (int i = 0; i < 500'000; ++i) text += "ab";
  EXPECT_EQ(tokenizer->encode(text, false), std::vector<int32_t>(500'000, 3));
}

// One word that merging takes long for, and many that it does not.
TEST(TokenizerJson, StopsWhereItIsTold) {
  const auto tokenizer = load(tiny_file());
  std::string text;
  for (int i = 0; i < 500'000; ++i) text += "ab";
  for (const int num_questions : {1, 2, 5}) {
    int num_asked = 0;
    EXPECT_EQ(tokenizer->encode_within(text, false,
                                       {.must_stop = [&] { return ++num_asked == num_questions; }}),
              std::nullopt);
    EXPECT_EQ(num_asked, num_questions)
        << "it was not asked often enough, or again after it said so";
  }
  EXPECT_EQ(tokenizer->encode_within(text, false, {.must_stop = [] { return false; }}),
            std::vector<int32_t>(500'000, 3));
}

TEST(TokenizerJson, GivesUpAtTheFirstIdTooMany) {
  const auto tokenizer =
      load(tiny_file(R"({"pre_tokenizer": {"type": "FixedLength", "length": 2}})"));
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "ab";
  EXPECT_EQ(tokenizer->encode_within(text, false, {.num_ids_max = 999}), std::nullopt);
  EXPECT_EQ(tokenizer->encode_within(text, false, {.num_ids_max = 1000}),
            std::vector<int32_t>(1000, 3));
}

// A word is rejected by its length before its characters are merged, which takes long.
TEST(TokenizerJson, GivesUpAtAWordThatMustHaveTooManyIds) {
  const auto tokenizer = load(tiny_file());
  std::string text;
  for (int i = 0; i < 500'000; ++i) text += "ab";
  int num_asked = 0;
  EXPECT_EQ(tokenizer->encode_within(
                text, false,
                {.num_ids_max = 499'999, .must_stop = [&] { return ++num_asked > 1'000'000; }}),
            std::nullopt);
  EXPECT_LT(num_asked, 5);
  EXPECT_EQ(tokenizer->encode_within(text, false, {.num_ids_max = 500'000}),
            std::vector<int32_t>(500'000, 3));
}

TEST(TokenizerJson, GivesUpExactlyWhereThereAreTooManyIds) {
  const Json model = parse_json(R"({"type": "BPE", "unk_token": "?", "fuse_unk": true, "vocab":
      {"?": 0, "a": 1, "b": 2, "c": 3, "ab": 4, "abc": 5, "cc": 6, "abcab": 7, "d?": 8, "d": 9},
      "merges": [["a", "b"], ["c", "c"], ["ab", "c"], ["abc", "ab"], ["d", "?"]]})",
                                "model");
  Json file = tiny_file();
  file["model"] = model;
  const auto tokenizer = load(file);
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t n = random() % 40; n > 0; --n) text += "abbccdx"[random() % 7];
    const std::vector<int32_t> ids = tokenizer->encode(text, false);
    for (size_t limit = 0; limit <= ids.size(); ++limit) {
      EXPECT_EQ(tokenizer->encode_within(text, false, {.num_ids_max = limit}).has_value(),
                limit == ids.size())
          << text << " within " << limit;
    }
  }
}

TEST(TokenizerJson, AnswersQuestionsAboutTokens) {
  const auto tokenizer =
      load(tiny_file(R"({"added_tokens": [{"id": 6, "content": "<s>", "special": true}]})"));
  EXPECT_EQ(tokenizer->num_ids(), 7);
  EXPECT_EQ(tokenizer->id_of("ab"), 3);
  EXPECT_EQ(tokenizer->id_of("<s>"), 6);
  EXPECT_EQ(tokenizer->id_of("zz"), std::nullopt);
  EXPECT_EQ(tokenizer->token_of(6), "<s>");
  EXPECT_EQ(tokenizer->token_of(5), "");
  EXPECT_TRUE(tokenizer->is_special(6));
  EXPECT_FALSE(tokenizer->is_special(3));
  EXPECT_EQ(tokenizer->encode("ab<s>a", false), (std::vector<int32_t>{3, 6, 1}));
}

// Any ids, also ones that no text gives: halves of characters, broken runs of byte tokens.
TEST(IncrementalDetokenizer, JoinsToDecodeForRandomIdsAndNeverCutsACharacter) {
  for (const char* name : {"gpt2", "llama3_style", "qwen2_style", "spm_own/bpe"}) {
    const auto tokenizer = load_tokenizer(kSourceDir / "testdata/tokenizers" / name);
    std::mt19937 random(1);
    for (int round = 0; round < 30; ++round) {
      std::vector<int32_t> ids(100);
      const uint32_t bound = round % 2 == 0 ? 300 : static_cast<uint32_t>(tokenizer->num_ids());
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % bound);
      IncrementalDetokenizer stream(*tokenizer, false);
      std::string joined;
      for (const int32_t id : ids) {
        const std::string piece = stream.push(id);
        ASSERT_EQ(quote(piece, 10'000).find("\\x8"), std::string::npos) << quote(piece);
        EXPECT_NO_THROW(tokenizer->encode(piece, false)) << quote(piece);  // is valid UTF-8
        joined += piece;
      }
      EXPECT_EQ(joined + stream.finish(), tokenizer->decode(ids, false)) << name;
    }
  }
}

TEST(LoadTokenizer, SaysWhatIsMissing) {
  EXPECT_THAT(message_of([] { load_tokenizer("/nonexistent"); }),
              HasSubstr("expected a tokenizer.json or a tokenizer.model, got neither"));
}

// Clients get the messages of encode(); those of loading are for who started the program.
TEST(LoadTokenizer, NamesTheFolderToItsOperatorAlone) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "halley_private_folder";
  std::filesystem::create_directories(folder);
  Json file = tiny_file();
  file["pre_tokenizer"] = {{"type", "Split"},
                           {"pattern", {{"Regex", "(?:a|aa)+[bc]"}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  std::ofstream(folder / "tokenizer.json") << file.dump();
  const auto tokenizer = load_tokenizer(folder);
  const std::string told = message_of([&] { tokenizer->encode(std::string(5000, 'a'), false); });
  EXPECT_THAT(told, HasSubstr("tokenizer.json: pre_tokenizer"));
  EXPECT_THAT(told, testing::Not(HasSubstr("halley_private_folder")));
  file["pre_tokenizer"]["pattern"]["Regex"] = "(a";
  std::ofstream(folder / "tokenizer.json") << file.dump();
  EXPECT_THAT(message_of([&] { load_tokenizer(folder); }),
              HasSubstr((folder / "tokenizer.json").string()));
  std::filesystem::remove_all(folder);
}

class SentencePieceFile : public testing::Test {
 protected:
  const std::string bytes_ =
      read_text_file(kSourceDir / "testdata/tokenizers/spm_own/bpe/tokenizer.model", 1u << 20);
};

TEST_F(SentencePieceFile, CutOffOrChangedGivesAnErrorAndNoCrash) {
  int num_rejected = 0;
  for (size_t size = 0; size < bytes_.size(); size += 97) {
    const auto message = message_of(
        [&] { SentencePieceTokenizer(std::string_view(bytes_).substr(0, size), {}, "cut.model"); });
    if (message != "no error") {
      EXPECT_THAT(message, HasSubstr("cut.model"));
      ++num_rejected;
    }
  }
  EXPECT_GT(num_rejected, 30);
}

TEST_F(SentencePieceFile, SettingsPutBosAndEosAround) {
  SpmSettings settings;
  settings.add_eos_token = true;
  const SentencePieceTokenizer tokenizer(bytes_, settings, "x");
  const std::vector<int32_t> ids = tokenizer.encode("the", true);
  EXPECT_EQ(ids.front(), tokenizer.id_of("<s>"));
  EXPECT_EQ(ids.back(), tokenizer.id_of("</s>"));
  EXPECT_EQ(std::vector<int32_t>(ids.begin() + 1, ids.end() - 1), tokenizer.encode("the", false));
  EXPECT_EQ(tokenizer.decode(ids, true), "the");
  EXPECT_EQ(tokenizer.decode(ids, false), "<s> the</s>");
  settings.add_bos_token = settings.add_eos_token = false;
  EXPECT_EQ(SentencePieceTokenizer(bytes_, settings, "x").encode("the", true),
            tokenizer.encode("the", false));
}

TEST_F(SentencePieceFile, AddedTokensAreFoundInTheText) {
  SpmSettings settings;
  AddedToken token;
  token.id = 400;
  token.content = "<|call|>";
  settings.added_tokens.push_back(token);
  settings.legacy = false;
  const SentencePieceTokenizer tokenizer(bytes_, settings, "x");
  EXPECT_EQ(tokenizer.num_ids(), 401);
  const std::vector<int32_t> ids = tokenizer.encode("the<|call|>the", false);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 400), 1);
  EXPECT_EQ(tokenizer.decode(ids, false), "the<|call|>the");
  settings.added_tokens[0].id = 5;
  EXPECT_THAT(message_of([&] { SentencePieceTokenizer(bytes_, settings, "x"); }),
              HasSubstr("expected one id for each token"));
}

}  // namespace
}  // namespace halley
