#include "halley/cli/chat_prompt.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley::cli {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kModel = HALLEY_SOURCE_DIR "/models/demo-21m";
/// Weights alone: neither a tokenizer nor a template.
const std::string kModelWithoutTemplate = HALLEY_SOURCE_DIR "/testdata/models/llama";

class ChatPromptTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  ChatPrompt prompt_of(const std::string& text) const {
    std::ofstream(path_) << text;
    return {kModel, path_, "a test", tokenizer_};
  }

  std::string path_ = testing::TempDir() + "chat_prompt_" +
                      testing::UnitTest::GetInstance()->current_test_info()->name() + ".jinja";
  std::shared_ptr<const Tokenizer> tokenizer_ = load_tokenizer(kModel);
  OrderedJson messages_ = {{{"role", "user"}, {"content", "Hello"}},
                           {{"role", "assistant"}, {"content", "Hi."}}};
};

TEST_F(ChatPromptTest, IsTheTemplatesTextInTokens) {
  const ChatPrompt prompt =
      prompt_of("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
  EXPECT_EQ(prompt.ids(messages_), tokenizer_->encode("user: Hello\nassistant: Hi.\n", false));
}

TEST_F(ChatPromptTest, EndsWhereTheAnswerBegins) {
  const ChatPrompt prompt = prompt_of("{% if add_generation_prompt %}answer:{% endif %}");
  EXPECT_EQ(prompt.ids(messages_), tokenizer_->encode("answer:", false));
}

TEST_F(ChatPromptTest, OfAModelIsItsOwn) {
  const ChatPrompt prompt(kModel, "", "a test", tokenizer_);
  const std::vector<int32_t> one = prompt.ids(OrderedJson::array({messages_.at(0)}));
  EXPECT_FALSE(one.empty());
  EXPECT_GT(prompt.ids(messages_).size(), one.size());
}

TEST_F(ChatPromptTest, SaysWhoNeedsATemplate) {
  EXPECT_THAT([&] { ChatPrompt(kModelWithoutTemplate, "", "--chat", tokenizer_); },
              ThrowsMessage<InputError>(HasSubstr("--chat: expected a chat template")));
}

TEST_F(ChatPromptTest, RejectsTemplatesThatCannotBeRead) {
  EXPECT_THROW(ChatPrompt(kModel, "no/such/file.jinja", "a test", tokenizer_), InputError);
  EXPECT_THROW(prompt_of("{% for %}"), InputError);
  const ChatPrompt rejecting = prompt_of("{{ raise_exception('no') }}");
  EXPECT_THROW(rejecting.ids(messages_), InputError);
}

}  // namespace
}  // namespace halley::cli
