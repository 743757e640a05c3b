#include "halley/cli/flag_hints.h"

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/cli/command.h"

namespace halley::cli {
namespace {

using testing::HasSubstr;

// The command `serve`, as the program has it.
struct ServeCommand {
  ServeCommand() { add_serve(app); }
  const CLI::App& get() { return *app.get_subcommand("serve"); }
  bool has(const std::string& option) { return get().get_option_no_throw(option) != nullptr; }
  std::string advice(const std::vector<std::string>& arguments) {
    return advice_for_flags(get(), arguments);
  }
  CLI::App app;
};

std::vector<std::string> names_of(std::string_view flags) {
  std::vector<std::string> names;
  std::stringstream stream{std::string(flags)};
  for (std::string name; std::getline(stream, name, ',');) names.push_back(name);
  return names;
}

TEST(FlagHints, PointToOptionsThatExistAndNameNoneOfOurs) {
  ServeCommand serve;
  std::set<std::string> all;
  for (const FlagHint& hint : flag_hints()) {
    EXPECT_TRUE(hint.ours.empty() || serve.has(std::string(hint.ours))) << hint.ours;
    EXPECT_FALSE(hint.ours.empty() && hint.advice.empty()) << hint.flags;
    EXPECT_FALSE(names_of(hint.flags).empty());
    for (const std::string& name : names_of(hint.flags)) {
      EXPECT_FALSE(serve.has(name)) << name << " is an option of halley serve";
      EXPECT_TRUE(all.insert(name).second) << name << " twice";
      EXPECT_EQ(find_flag_hint(name), &hint);
      EXPECT_EQ(find_flag_hint(name + "=3"), &hint);
    }
  }
  EXPECT_EQ(find_flag_hint("--port"), nullptr);
  EXPECT_EQ(find_flag_hint("-"), nullptr);
  EXPECT_EQ(find_flag_hint(""), nullptr);
}

TEST(FlagHints, AdviseOnPastedCommandLines) {
  ServeCommand serve;
  EXPECT_EQ(serve.advice({"m", "--port", "1", "--kv-cache-dtype", "fp8"}),
            "--kv-cache-dtype is a flag of vLLM and SGLang. Use --kv-dtype.");
  EXPECT_THAT(serve.advice({"m", "--data-parallel-size=2"}), HasSubstr("Use --device."));
  EXPECT_THAT(serve.advice({"m", "-tp", "2"}), HasSubstr("Use --tensor-parallel-size."));
  EXPECT_THAT(serve.advice({"-m", "m.gguf", "-ngl", "99"}), HasSubstr("argument MODEL"));
  EXPECT_THAT(serve.advice({"m", "-ngl", "99"}), HasSubstr("of llama.cpp. Use --device."));
  EXPECT_THAT(serve.advice({"m", "--mem-fraction-static", "0.8"}),
              HasSubstr("Use --gpu-memory-utilization."));
  EXPECT_THAT(serve.advice({"m", "--ctx-size", "4096"}), HasSubstr("Use --max-model-len."));
}

// The nearest of our names is no help for these.
TEST(FlagHints, AnswerOtherServersFlagsWithoutASuggestion) {
  ServeCommand serve;
  for (const char* flag : {"--lora-dtype", "--max-log-len", "--config-format", "--master-addr",
                           "--kv-transfer-config", "--middleware", "--no-warmup", "-ncmoe"}) {
    EXPECT_THAT(serve.advice({"m", flag, "1"}), HasSubstr("is a flag of")) << flag;
  }
}

TEST(FlagHints, SuggestOptionsThatAreMisspelt) {
  ServeCommand serve;
  EXPECT_EQ(serve.advice({"m", "--max-model-length", "9"}), "Did you mean --max-model-len?");
  EXPECT_EQ(serve.advice({"m", "--max-num-seq=9"}), "Did you mean --max-num-seqs?");
  EXPECT_EQ(serve.advice({"m", "--frobnicate"}), "");
  EXPECT_EQ(serve.advice({"m", "x", "--port", "1", "-"}), "");
}

TEST(FlagHints, OtherCommandsHaveSuggestionsAlone) {
  CLI::App app;
  add_tokenize(app);
  const CLI::App& tokenize = *app.get_subcommand("tokenize");
  EXPECT_EQ(advice_for_flags(tokenize, std::vector<std::string>{"--ctx-size", "1"}), "");
}

}  // namespace
}  // namespace halley::cli
