#include "halley/checkpoint/chat_template/chat_template.h"

#include <ctime>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/chat_template/ast.h"
#include "halley/checkpoint/chat_template/evaluator.h"
#include "halley/checkpoint/chat_template/json_value.h"
#include "halley/checkpoint/chat_template/lexer.h"
#include "halley/checkpoint/chat_template/parser.h"
#include "halley/checkpoint/chat_template/text.h"

namespace halley {
namespace {

std::tm local_time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm result{};
  ::localtime_r(&now, &result);
  return result;
}

jinja::Body parse(std::string_view source, const std::string& where, const TemplateLimits& limits) {
  if (source.size() > limits.source_bytes_max) {
    throw InputError(str(where, ": expected a template of at most ", limits.source_bytes_max,
                         " bytes, got ", source.size(), "."));
  }
  const size_t invalid = jinja::find_invalid_utf8(source);
  if (invalid != std::string_view::npos) {
    throw InputError(str(where, ": expected UTF-8, got other bytes at byte ", invalid, "."));
  }
  try {
    return jinja::parse_template(source, limits.depth_max);
  } catch (const jinja::SyntaxFailure& failure) {
    throw InputError(str(where, ":", failure.line, ": ", failure.what()));
  }
}

}  // namespace

class ChatTemplate::Impl {
 public:
  Impl(std::string_view source, std::string where, const TemplateLimits& limits)
      : body_(parse(source, where, limits)),
        where_(std::move(where)),
        limits_(limits),
        clock_(local_time_now) {}

  void set_clock(Clock clock) { clock_ = std::move(clock); }

  std::string render(const OrderedJson& context) const {
    if (!context.is_object()) {
      throw InputError(
          str(where_, ": expected an object as the context, got ", context.type_name(), "."));
    }
    jinja::Runtime runtime(limits_, clock_);
    try {
      const auto scope = std::make_shared<jinja::Scope>();
      for (auto it = context.begin(); it != context.end(); ++it) {
        runtime.set_variable(*scope, it.key(), jinja::from_json(runtime, *it));
      }
      jinja::OutputBuffer out(runtime);
      jinja::Evaluator(runtime).render(body_, std::make_shared<jinja::Scope>(scope), out);
      return out.text();
    } catch (const jinja::TemplateFailure& failure) {
      throw InputError(str(where_, ":", runtime.line, ": ", failure.what()));
    }
  }

 private:
  jinja::Body body_;
  std::string where_;
  TemplateLimits limits_;
  Clock clock_;
};

ChatTemplate::ChatTemplate(std::string_view source, const std::string& where,
                           const TemplateLimits& limits)
    : impl_(std::make_unique<Impl>(source, where, limits)) {}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::render(const OrderedJson& context) const {
  return impl_->render(context);
}

void ChatTemplate::set_clock(Clock clock) { impl_->set_clock(std::move(clock)); }

}  // namespace halley
