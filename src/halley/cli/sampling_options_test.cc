#include "halley/cli/sampling_options.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley::cli {
namespace {

using testing::HasSubstr;
using testing::StrEq;
using testing::ThrowsMessage;

/// The parameters for `words`, with the defaults that a model's generation_config.json gives.
SamplingParams parse(const std::string& words, const SamplingSettings& of_model = {}) {
  CLI::App app;
  SamplingOptions options;
  add_sampling_options(app, options);
  app.parse(words);
  GenerationConfig generation;
  generation.sampling = of_model;
  return make_sampling_params(options, generation);
}

TEST(SamplingOptions, SetTheParametersOfTheTable) {
  const SamplingParams params = parse(
      "--temperature 0.5 --top-k 7 --top-p 0.25 --min-p 0.125 --repetition-penalty 1.5 "
      "--presence-penalty -1 --frequency-penalty 2");
  EXPECT_EQ(params.temperature, 0.5);
  EXPECT_EQ(params.top_k, 7);
  EXPECT_EQ(params.top_p, 0.25);
  EXPECT_EQ(params.min_p, 0.125);
  EXPECT_EQ(params.repetition_penalty, 1.5);
  EXPECT_EQ(params.presence_penalty, -1);
  EXPECT_EQ(params.frequency_penalty, 2);
}

TEST(SamplingOptions, HaveTheBreakersOfDry) {
  EXPECT_EQ(parse("").dry_sequence_breakers, SamplingParams().dry_sequence_breakers);
  const SamplingParams params = parse(
      "--dry-multiplier 0.8 --dry-penalty-last-n 64 --dry-sequence-breaker ; "
      "--dry-sequence-breaker ,");
  EXPECT_EQ(params.dry_multiplier, 0.8);
  EXPECT_EQ(params.dry_penalty_last_n, 64);
  EXPECT_THAT(params.dry_sequence_breakers, testing::ElementsAre(";", ","));
  EXPECT_TRUE(parse("--dry-sequence-breaker none").dry_sequence_breakers.empty());
}

TEST(SamplingOptions, AreStrongerThanTheModelsDefaults) {
  const SamplingSettings of_model = {{find_sampling_field("temperature"), 0.6},
                                     {find_sampling_field("top_k"), int64_t{20}}};
  const SamplingParams params = parse("--top-k 0", of_model);
  EXPECT_EQ(params.temperature, 0.6);
  EXPECT_EQ(params.top_k, 0);
  EXPECT_EQ(params.top_p, 1);
}

TEST(SamplingOptions, HaveOneOptionWithTypeAndTextForEachField) {
  CLI::App app;
  SamplingOptions options;
  add_sampling_options(app, options);
  const std::string help = app.help();
  for (const SamplingField& field : sampling_fields()) {
    EXPECT_THAT(help, HasSubstr(field.option_text)) << field.name;
  }
  EXPECT_THAT(help, HasSubstr("--top-k INT "));
  EXPECT_THAT(help, HasSubstr("--frequency-penalty FLOAT "));
}

TEST(SamplingOptions, RejectValuesOfTheWrongType) {
  EXPECT_THROW(parse("--top-k 1.5"), CLI::ConversionError);
  EXPECT_THROW(parse("--min-p much"), CLI::ConversionError);
  EXPECT_THAT([] { parse("--logit-bias 3"); },
              ThrowsMessage<InputError>(
                  StrEq("--logit-bias: expected ID:BIAS such as 42:-100, got \"3\".")));
}

}  // namespace
}  // namespace halley::cli
