#include "halley/python/eval_model.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley::python {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kModel = HALLEY_SOURCE_DIR "/models/demo-21m";
constexpr const char* kText = HALLEY_SOURCE_DIR "/testdata/text/docs_heldout.txt";

const EvalProgress kNoProgress = [](double, double) {};

SessionOptions demo_options() {
  SessionOptions options;
  options.model = kModel;
  options.device = "cpu";
  options.threads = 1;
  return options;
}

TEST(EvalModel, ChecksItsArguments) {
  SessionOptions options = demo_options();
  options.precision = "auto";
  EXPECT_THAT([&] { EvalModel model(options); },
              ThrowsMessage<InputError>(HasSubstr("precision: expected full or low, got")));
  options = demo_options();
  options.precision = "low";
  EXPECT_THAT([&] { EvalModel model(options); },
              ThrowsMessage<InputError>(HasSubstr("expected a model with weights in two")));
  options = demo_options();
  options.kv_cache_dtype = "f8";
  EXPECT_THAT([&] { EvalModel model(options); },
              ThrowsMessage<InputError>(HasSubstr("kv_cache_dtype: expected auto, f32")));
}

TEST(EvalModel, MeasuresATextAloneAndAgainstItself) {
  EvalModel model(demo_options());
  EXPECT_THAT(model.perplexity(kText, {.window = 16, .num_windows = 1}, "", kNoProgress),
              HasSubstr(R"("num_tokens":15)"));
  EXPECT_THAT(model.compare(kModel, "auto", kText, {.window = 16, .num_windows = 1}, kNoProgress),
              HasSubstr(R"("top1_agreement":{"value":1.0)"));
  EXPECT_THAT([&] { model.perplexity(kText, {.window = 1}, "", kNoProgress); },
              ThrowsMessage<InputError>(HasSubstr("window: expected 2 to")));
  EXPECT_THAT([&] { model.compare(kModel, "auto", kText, {.num_windows = -1}, kNoProgress); },
              ThrowsMessage<InputError>(HasSubstr("num_windows: expected 0 to")));
}

}  // namespace
}  // namespace halley::python
