#include "halley/checkpoint/chat_template/chat_template.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::tm fixed_time() {
  std::tm time{};  // 2025-01-02 03:04:05, a Thursday
  time.tm_year = 125;
  time.tm_mon = 0;
  time.tm_mday = 2;
  time.tm_hour = 3;
  time.tm_min = 4;
  time.tm_sec = 5;
  time.tm_wday = 4;
  time.tm_yday = 1;
  return time;
}

std::string render(const std::string& source, const OrderedJson& context = OrderedJson::object(),
                   const TemplateLimits& limits = {}) {
  ChatTemplate chat_template(source, "test", limits);
  chat_template.set_clock(fixed_time);
  return chat_template.render(context);
}

OrderedJson read_json(const std::filesystem::path& path) {
  return parse_ordered_json(read_text_file(path, 4 << 20), path.string());
}

std::filesystem::path source_dir() { return HALLEY_SOURCE_DIR; }

// Every case of one published template: the text, or the error where one is expected.
int check_golden_file(const std::filesystem::path& path) {
  const OrderedJson golden = read_json(path);
  const std::string source = golden.at("template").get<std::string>();
  int num_cases = 0;
  for (const OrderedJson& entry : golden.at("cases")) {
    SCOPED_TRACE(str(path.filename().string(), " ", entry.at("case").get<std::string>()));
    ++num_cases;
    if (entry.contains("expected")) {
      EXPECT_EQ(render(source, entry.at("context")), entry.at("expected").get<std::string>());
    } else {
      EXPECT_THAT([&] { render(source, entry.at("context")); },
                  ThrowsMessage<InputError>(HasSubstr(entry.at("error").get<std::string>())));
    }
  }
  return num_cases;
}

int check_golden_folder(const std::filesystem::path& folder) {
  int num_cases = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".json" || file.path().stem() == "snippets") continue;
    num_cases += check_golden_file(file.path());
  }
  return num_cases;
}

TEST(ChatTemplateGoldens, PublishedTemplatesRenderAsInJinja) {
  EXPECT_GE(check_golden_folder(source_dir() / "testdata/chat_templates"), 60);
}

TEST(ChatTemplateGoldens, TemplatesOfOtherLicencesRenderAsInJinja) {
  const std::filesystem::path folder =
      std::filesystem::path(
          env_string("HALLEY_EXTRA_GOLDENS").value_or(source_dir() / "../shared/goldens")) /
      "chat_templates";
  if (!std::filesystem::is_directory(folder)) {
    GTEST_SKIP() << folder << " is absent: set HALLEY_EXTRA_GOLDENS to the folder of goldens whose "
                 << "licence does not allow them in this repository";
  }
  EXPECT_GE(check_golden_folder(folder), 80);
}

TEST(ChatTemplateGoldens, SnippetsRenderAsInJinja) {
  const OrderedJson snippets = read_json(source_dir() / "testdata/chat_templates/snippets.json");
  const OrderedJson& context = snippets.at("context");
  EXPECT_GE(snippets.at("cases").size(), 400u);
  for (const OrderedJson& entry : snippets.at("cases")) {
    const std::string source = entry.at("t").get<std::string>();
    SCOPED_TRACE(source);
    if (entry.contains("e")) {
      EXPECT_THAT([&] { render(source, context); },
                  ThrowsMessage<InputError>(HasSubstr(entry.at("e").get<std::string>())));
      continue;
    }
    try {
      EXPECT_EQ(render(source, context), entry.at("x").get<std::string>());
    } catch (const InputError& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

struct Rejection {
  const char* source;
  const char* message;
};

TEST(ChatTemplateSyntax, RejectsByNameWithTheLine) {
  const std::vector<Rejection> rejections = {
      {"{% extends 'x' %}", "test:1: the tag \"extends\" is not supported"},
      {"a\nb{% include 'x' %}", "test:2: the tag \"include\" is not supported"},
      {"{% import 'x' as y %}", "test:1: the tag \"import\" is not supported"},
      {"{% block x %}{% endblock %}", "test:1: the tag \"block\" is not supported"},
      {"\n\n{% for a in b recursive %}{% endfor %}", "test:3: recursive loops are not supported"},
      {"{% frob %}", "test:1: Encountered unknown tag \"frob\""},
      {"{{ x|frob }}", "test:1: no filter named \"frob\" is supported"},
      {"{{ x is frob }}", "test:1: no test named \"frob\" is supported"},
      {"{{ 'a", "test:1: a string that starts with ' has no end"},
      {"{{ (1 }}", "test:1: unexpected '}', expected ')'"},
      {"{{ 1 + }}", "test:1: expected an expression, got end of print statement"},
      {"{{ 9223372036854775808 }}", "test:1: the number \"9223372036854775808\" does not fit"},
      {"{# a", "test:1: Missing end of comment tag"},
      {"{% raw %} a", "test:1: Missing end of raw directive"},
      {"{% if a %}", "test:1: the template ends, but a block is open: expected \"endif\""},
      {"{% break %}", "test:1: \"break\" outside of a loop"},
      {"{% set true = 1 %}", "test:1: can't assign to \"true\""},
      {"{{ '\\ud800' }}", "test:1: the escape \\u gives no Unicode character"},
      {"{{ '\\N{DASH}' }}", "test:1: the escape \\N{...} is not supported"},
  };
  for (const Rejection& rejection : rejections) {
    EXPECT_THAT([&] { render(rejection.source); },
                ThrowsMessage<InputError>(HasSubstr(rejection.message)))
        << rejection.source;
  }
}

TEST(ChatTemplateErrors, NameTheLineAndTheReason) {
  const std::vector<Rejection> errors = {
      {"a\n{{ raise_exception('no way') }}", "test:2: no way"},
      {"{{ x.y }}", "test:1: 'x' is undefined"},
      {"{{ {}.a.b }}", "test:1: 'dict object' has no attribute 'a'"},
      {"{{ [].append(1) }}", "access to attribute 'append' of 'list' object is unsafe."},
      {"{{ ''.__class__() }}", "access to attribute '__class__' of 'str' object is unsafe."},
      {"{{ 1 // 0 }}", "integer division or modulo by zero"},
      {"{{ 9223372036854775807 + 1 }}", "the result of + does not fit a 64-bit integer"},
      {"{{ 2 ** 64 }}", "the result of ** does not fit a 64-bit integer"},
      {"{{ 'a' + 1 }}", "can only concatenate str (not \"int\") to str"},
      {"{{ 1 < 'a' }}", "'<' not supported between instances of 'int' and 'str'"},
      {"{{ range(10 ** 12) }}", "Range too big"},
      {"{{ namespace(_x=1) }}", "names that start with an underscore are rejected"},
      {"{% for a, b in [1] %}{% endfor %}", "'int' object is not iterable"},
      {"{% for a, b in [[1]] %}{% endfor %}", "not enough values to unpack (expected 2, got 1)"},
      {"{{ strftime_now('%Q') }}", "strftime_now() does not support the conversion \"%Q\""},
      {"{{ {[]: 1} }}", "unhashable type: 'list'"},
      {"{{ {} | tojson(1, 2, 3, 4, 5) }}", "tojson() takes at most 4 argument(s), got 5"},
      {"{{ dict() | tojson(indent='a', frob=1) }}", "takes no keyword argument \"frob\""},
  };
  for (const Rejection& rejection : errors) {
    EXPECT_THAT([&] { render(rejection.source); },
                ThrowsMessage<InputError>(HasSubstr(rejection.message)))
        << rejection.source;
  }
  EXPECT_THAT([] { render("", OrderedJson::array()); },
              ThrowsMessage<InputError>(HasSubstr("test: expected an object as the context")));
  EXPECT_THAT(
      [] {
        render("{{ x }}", {{"x", 1ull << 63}});
      },
      ThrowsMessage<InputError>(HasSubstr("does not fit 64 bits with sign")));
  EXPECT_THAT(
      [] {
        render("", {{"x", "\xff"}});
      },
      ThrowsMessage<InputError>(HasSubstr("not valid UTF-8")));
  EXPECT_THAT(
      [] { render("a\xff"); },
      ThrowsMessage<InputError>(HasSubstr("test: expected UTF-8, got other bytes at byte 1")));
}

TEST(ChatTemplateLimits, EachStopsTheRendering) {
  const TemplateLimits limits = {.source_bytes_max = 4000,
                                 .num_steps_max = 100'000,
                                 .depth_max = 20,
                                 .output_bytes_max = 100'000,
                                 .num_frames_max = 100,
                                 .memory_bytes_max = 1'000'000};
  const std::string loop = "{% set ns = namespace(x='a') %}{% for i in range(9999) %}";
  const std::vector<std::pair<std::string, const char*>> cases = {
      {std::string(4001, 'a'), "expected a template of at most 4000 bytes, got 4001"},
      {"{{ " + std::string(30, '(') + "1" + std::string(30, ')') + " }}",
       "nested deeper than the limit of 20 levels"},
      {"{{ a" + std::string(60, '.') + " }}", "expected a name or a number"},
      {"{{ " + std::string(90, '-') + "1 }}", "nested deeper than the limit of 20 levels"},
      {"{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
       "more than the limit of 100000 steps"},
      {"{{ 'x' * 10 ** 9 }}", "a string of 1000000000 bytes is over the limit of 100000"},
      {"{{ [1] * 10 ** 9 }}", "a list of 1000000000 items is over the limit"},
      {"{{ '%999999999d' % 1 }}", "is over the limit of 100000"},
      {"{{ 'a'.ljust(10 ** 15) }}", "is over the limit of 100000"},
      {loop + "{% set ns.x = ns.x + ns.x %}{% endfor %}", "is over the limit of 100000"},
      {loop + "{{ 'abcdefghij' * 100 }}{% endfor %}", "the output is over the limit of 100000"},
      {loop + "{% set ns.x = [ns.x] %}{% endfor %}", "a value is nested deeper than 200 levels"},
      {"{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = ns.x + ['x' * 50000 ~ "
       "i] %}"
       "{% endfor %}",
       "more than the limit of 1000000 bytes of memory"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested deeper than the limit of"},
      {"{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "nested too deep"},
  };
  for (const auto& [source, message] : cases) {
    const auto run = [&limits, &text = source] { render(text, OrderedJson::object(), limits); };
    EXPECT_THAT(run, ThrowsMessage<InputError>(HasSubstr(message))) << source.substr(0, 100);
  }
}

TEST(ChatTemplateLimits, SharedValuesDoNotMultiplyWork) {
  const TemplateLimits limits = {.num_steps_max = 100'000};
  // A tree of 2^40 leaves that takes 40 lists: comparing or printing it must stop.
  const std::string tree =
      "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(40) %}"
      "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}";
  EXPECT_THAT([&] { render(tree + "{{ ns.a == ns.b }}", OrderedJson::object(), limits); },
              ThrowsMessage<InputError>(HasSubstr("more than the limit of 100000 steps")));
  EXPECT_THAT([&] { render(tree + "{{ ns.a }}", OrderedJson::object(), limits); },
              ThrowsMessage<InputError>(HasSubstr("limit of")));
}

TEST(ChatTemplateLimits, LongStringsCountAlsoWhereTheResultIsShort) {
  const TemplateLimits limits = {.num_steps_max = 100'000};
  // Each takes long for one evaluation, and makes next to nothing that could be counted.
  for (const char* expression :
       {"blanks.strip()", "blanks | trim", "x.strip(x)", "digits | float", "digits | int",
        "x.removeprefix(x)", "x.removesuffix(x)", "x is lower", "x is upper", "x.isalpha()",
        "x[::-1][:1]", "x.islower()", "x | wordcount", "{x: 1}[x]"}) {
    const std::string source =
        str("{% set blanks = ' ' * 40000 %}{% set x = 'a' * 40000 %}{% set digits = '.' * 40000 %}",
            "{% for i in range(9999) %}{% set y = ", expression, " %}{% endfor %}");
    EXPECT_THAT([&] { render(source, OrderedJson::object(), limits); },
                ThrowsMessage<InputError>(HasSubstr("more than the limit of 100000 steps")))
        << expression;
  }
}

TEST(ChatTemplate, LongChainsOfMacrosAndNamespacesAreTakenApart) {
  // Each macro sees the one before: a chain of 2000 that must not be destroyed recursively.
  EXPECT_EQ(render("{% set ns = namespace() %}{% for i in range(2000) %}{% set before = ns.m %}"
                   "{% macro m() %}{{ before is defined }}{% endmacro %}{% set ns.m = m %}"
                   "{% endfor %}{{ ns.m() }}"),
            "True");
  EXPECT_EQ(render("{% set ns = namespace() %}{% for i in range(2000) %}"
                   "{% set next = namespace(before=ns.x) %}{% set ns.x = next %}{% endfor %}"
                   "{{ ns.x.before is defined }}"),
            "True");
}

TEST(ChatTemplate, ConditionsOfLoopsSeeWhatTheBodyDid) {
  EXPECT_EQ(render("{% set ns = namespace(n=0) %}{% for x in [1, 2, 3, 4] if ns.n < 2 %}{{ x }}"
                   "{% set ns.n = ns.n + 1 %}{% endfor %}"),
            "12");
}

class ModelFolder {
 public:
  ModelFolder() {
    path_ = std::filesystem::path(testing::TempDir()) /
            str("chat_template_test_",
                testing::UnitTest::GetInstance()->current_test_info()->name(), "_", ::getpid());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  void write(const char* name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(LoadChatTemplateSource, TakesTheFileThenTheConfig) {
  const ModelFolder model;
  EXPECT_EQ(load_chat_template_source(model.path(), false), std::nullopt);
  model.write("tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_EQ(load_chat_template_source(model.path(), false), std::nullopt);
  model.write("tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_EQ(load_chat_template_source(model.path(), true), "one");
  model.write("tokenizer_config.json",
              R"({"chat_template": [{"name": "tool_use", "template": "tools"},
                                    {"name": "default", "template": "plain"}]})");
  EXPECT_EQ(load_chat_template_source(model.path(), false), "plain");
  EXPECT_EQ(load_chat_template_source(model.path(), true), "tools");
  model.write("chat_template.jinja", "file");
  EXPECT_EQ(load_chat_template_source(model.path(), true), "file");
}

TEST(LoadChatTemplateSource, RejectsOtherTypes) {
  const ModelFolder model;
  const auto load = [&] { load_chat_template_source(model.path(), false); };
  model.write("tokenizer_config.json", R"({"chat_template": 7})");
  EXPECT_THAT(load, ThrowsMessage<InputError>(HasSubstr("expected a string or a list of named")));
  model.write("tokenizer_config.json", R"({"chat_template": [{"name": "x", "template": "y"}]})");
  EXPECT_THAT(load, ThrowsMessage<InputError>(HasSubstr("the name \"default\", got 1 others")));
  model.write("tokenizer_config.json", R"({"chat_template": [{"name": "x"}]})");
  EXPECT_THAT(load, ThrowsMessage<InputError>(HasSubstr("with the string \"template\"")));
  model.write("tokenizer_config.json", "[]");
  EXPECT_THAT(load, ThrowsMessage<InputError>(HasSubstr("expected an object, got array")));
}

// The template of a model in `folder`, whose file is a link to `target`.
std::optional<std::string> linked_template(const std::filesystem::path& folder,
                                           const std::string& target) {
  const std::filesystem::path file = folder / "chat_template.jinja";
  std::filesystem::remove(file);
  std::filesystem::create_symlink(target, file);
  return load_chat_template_source(folder, false);
}

TEST(LoadChatTemplateSource, FollowsLinksInsideTheFolderAndIntoTheCacheAlone) {
  const ModelFolder home;
  const auto revision = home.path() / "models--org--name" / "snapshots" / "0123";
  std::filesystem::create_directories(revision / "sub");
  std::filesystem::create_directories(home.path() / "models--org--name" / "blobs");
  home.write("models--org--name/blobs/abcd", "cached");
  home.write("models--org--name/snapshots/0123/other.jinja", "inside");
  home.write("secret", "private key");
  EXPECT_EQ(linked_template(revision, "../../blobs/abcd"), "cached");
  EXPECT_EQ(linked_template(revision / "sub", "../../../blobs/abcd"), "cached");
  EXPECT_EQ(linked_template(revision, "other.jinja"), "inside");
  for (const std::string& target :
       {std::string("../../../secret"), std::string("../../refs"),
        (home.path() / "secret").string(), std::string("../../blobs/../../secret")}) {
    std::filesystem::create_directories(home.path() / "models--org--name" / "refs");
    EXPECT_THAT([&] { linked_template(revision, target); },
                ThrowsMessage<InputError>(HasSubstr("got a link out of it")))
        << target;
  }
  // A link to a link counts as where the last one leads.
  std::filesystem::create_symlink(home.path() / "secret", revision / "hop");
  EXPECT_THAT([&] { linked_template(revision, "hop"); },
              ThrowsMessage<InputError>(HasSubstr("got a link out of it")));
  std::filesystem::remove(revision / "chat_template.jinja");
  std::filesystem::create_symlink(home.path() / "secret", revision / "tokenizer_config.json");
  EXPECT_THAT([&] { load_chat_template_source(revision, false); },
              ThrowsMessage<InputError>(HasSubstr("got a link out of it")));
  // No model without a template, but a damaged one.
  for (const std::string& target : {std::string("nothing"), std::string("chat_template.jinja"),
                                    std::string("../../blobs/nothing")}) {
    EXPECT_THAT([&] { linked_template(revision, target); },
                ThrowsMessage<InputError>(HasSubstr("got a link that leads nowhere")))
        << target;
  }
  std::filesystem::remove(revision / "chat_template.jinja");
  // The model's folder itself may be a link.
  std::filesystem::remove(revision / "tokenizer_config.json");
  std::filesystem::create_symlink(revision, home.path() / "current");
  EXPECT_EQ(linked_template(home.path() / "current", "../../blobs/abcd"), "cached");
}

TEST(LoadSpecialTokenContext, ReadsStringsAndObjects) {
  const ModelFolder model;
  EXPECT_EQ(load_special_token_context(model.path()).dump(), "{}");
  model.write("tokenizer_config.json",
              R"({"eos_token": {"content": "</s>", "lstrip": false}, "bos_token": "<s>",
                  "pad_token": null})");
  EXPECT_EQ(load_special_token_context(model.path()).dump(),
            R"({"bos_token":"<s>","eos_token":"</s>"})");
  model.write("tokenizer_config.json", R"({"eos_token": 3})");
  EXPECT_THAT(
      [&] { load_special_token_context(model.path()); },
      ThrowsMessage<InputError>(HasSubstr("eos_token: expected an object with the string")));
}

}  // namespace
}  // namespace halley
