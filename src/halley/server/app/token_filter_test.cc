#include "halley/server/app/token_filter.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/server/app/testing/app_fixture.h"

namespace halley {
namespace {

// The ids of a mask.
std::vector<int32_t> ids_of(const TokenMask& mask, size_t num_ids) {
  std::vector<int32_t> ids;
  for (size_t id = 0; id < num_ids; ++id) {
    if (has_token(mask, id)) ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

std::vector<int32_t> allowed_after(const TokenFilter& filter, const std::vector<int32_t>& output) {
  const auto constraint = make_token_constraint(filter)->start();
  TokenMask mask;
  for (const int32_t id : output) {
    EXPECT_TRUE(constraint->fill_allowed(mask));
    EXPECT_TRUE(constraint->accept(id));
  }
  EXPECT_TRUE(constraint->fill_allowed(mask));
  return ids_of(mask, filter.num_ids);
}

TEST(TokenFilter, AllowsTheTokensOfItsListAlone) {
  const TokenFilter filter = {.num_ids = 130, .allowed = {0, 63, 64, 129}};
  EXPECT_EQ(allowed_after(filter, {}), (std::vector<int32_t>{0, 63, 64, 129}));
  EXPECT_EQ(allowed_after(filter, {64, 0}), (std::vector<int32_t>{0, 63, 64, 129}));
}

TEST(TokenFilter, BansTheLastTokenOfASequenceBehindItsOthers) {
  const TokenFilter filter = {.num_ids = 4, .banned = {{2}, {0, 1}, {0, 0, 3}}};
  EXPECT_EQ(allowed_after(filter, {}), (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(allowed_after(filter, {0}), (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(allowed_after(filter, {0, 0}), (std::vector<int32_t>{0}));
  EXPECT_EQ(allowed_after(filter, {0, 0, 1}), (std::vector<int32_t>{0, 1, 3}));
}

std::string text_of(App& app, const std::string& fields) {
  return app.post_json("/v1/completions", R"({"prompt": "a", "temperature": 0, )" + fields +
                                              "}")["choices"][0]["text"];
}

TEST(TokenFilter, HoldsForRequests) {
  App app(writer_of("hello you", 1));
  EXPECT_EQ(text_of(app, R"("max_tokens": 9)"), "hello you");
  const int32_t x = tokenizer()->encode("x", false).front();
  const std::string only = R"("max_tokens": 3, "allowed_token_ids": [)" + std::to_string(x) + "]";
  EXPECT_EQ(text_of(app, only), "xxx");
  EXPECT_EQ(text_of(app, R"("max_tokens": 2, "bad_words": ["el"])").substr(0, 1), "h");
  for (const char* word : {"e", "he", "hel"}) {
    const std::string text =
        text_of(app, R"("max_tokens": 9, "bad_words": [")" + std::string(word) + "\"]");
    EXPECT_EQ(text.find(word), std::string::npos) << word << ": " << text;
  }
}

}  // namespace
}  // namespace halley
