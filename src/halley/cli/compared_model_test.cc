#include "halley/cli/compared_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley::cli {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const ModelOptions kDefaults = [] {
  ModelOptions options;
  options.threads = 3;
  options.kv_dtype = "f16";
  return options;
}();

TEST(ComparedModel, IsAFolderWithTheDefaults) {
  const ModelOptions options = compared_model("models/a", kDefaults);
  EXPECT_EQ(options.model, "models/a");
  EXPECT_EQ(options.kv_dtype, "f16");
  EXPECT_EQ(options.precision, "full");
  EXPECT_EQ(options.threads, 3);
}

TEST(ComparedModel, MayHaveSettingsOfItsOwn) {
  const ModelOptions both = compared_model("models/a@kv=int4,precision=low", kDefaults);
  EXPECT_EQ(both.model, "models/a");
  EXPECT_EQ(both.kv_dtype, "int4");
  EXPECT_EQ(both.precision, "low");
  EXPECT_EQ(compared_model("a@precision=full", kDefaults).kv_dtype, "f16");
}

TEST(ComparedModel, AnAtInItsPathIsNoSetting) {
  EXPECT_EQ(compared_model("user@host/model", kDefaults).model, "user@host/model");
  const ModelOptions options = compared_model("user@host/model@kv=fp8", kDefaults);
  EXPECT_EQ(options.model, "user@host/model");
  EXPECT_EQ(options.kv_dtype, "fp8");
}

TEST(ComparedModel, RejectsOtherSettings) {
  for (const char* setting :
       {"kv=f17", "precision=half", "threads=2", "kv=int8,", "kv=int8,low", "=", "kv="}) {
    // A last empty setting is none: std::getline gives nothing behind the comma.
    if (std::string(setting) == "kv=int8,") {
      EXPECT_EQ(compared_model("a@kv=int8,", kDefaults).kv_dtype, "int8");
      continue;
    }
    EXPECT_THAT([&] { compared_model(std::string("a@") + setting, kDefaults); },
                ThrowsMessage<InputError>(HasSubstr("MODEL@SETTINGS: expected kv=f32")))
        << setting;
  }
}

}  // namespace
}  // namespace halley::cli
