#include "halley/server/app/output_constraint.h"

#include <optional>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/constraint/grammar.h"
#include "halley/constraint/grammar_constraint.h"
#include "halley/constraint/json_grammar.h"
#include "halley/constraint/json_schema.h"
#include "halley/constraint/pattern.h"
#include "halley/constraint/text_grammar.h"
#include "halley/constraint/tool_call.h"
#include "halley/constraint/unique_items.h"
#include "halley/server/app/token_filter.h"
#include "halley/server/openai/api_error.h"

namespace halley {
namespace {

constexpr size_t kUnusedBytesMax = size_t{128} << 20;  // some 500 ordinary schemas
constexpr size_t kMaskBytesMax = size_t{256} << 20;    // of kept ones and of live requests
constexpr int kRetryAfterS = 1;

// A constraint with its part of the budget, which is given back once its memory is free.
struct CountedConstraint {
  ByteReservation bytes;
  ConstraintCache::Compiled constraint;
};

// Arguments are an object even if the schema does not say so.
OrderedJson arguments_schema(const ApiTool& tool) {
  OrderedJson schema = tool.parameters;
  if (!schema.contains("type")) schema["type"] = "object";
  return schema;
}

std::string where_of(size_t tool_index) {
  return str("tools[", tool_index, "].function.parameters");
}

// [{"name": ..., "arguments": {...}}, ...]
Grammar calls_grammar(const ApiRequest& request) {
  GrammarBuilder builder("tools");
  JsonGrammar json(builder);
  std::vector<ExprId> calls;
  for (size_t i = 0; i < request.tools.size(); ++i) {
    const ApiTool& tool = request.tools[i];
    const std::vector<JsonMember> members = {
        {"name", json.literal(tool.name), true},
        {"arguments", json_schema_values(builder, arguments_schema(tool), where_of(i)), true}};
    calls.push_back(json.object(members, std::nullopt));
  }
  JsonArrayShape shape;
  shape.items = builder.choice(calls);
  shape.num_min = 1;
  shape.num_max = request.allows_parallel_calls ? kParallelToolCallsMax : 1;
  return builder.finish(json.array(shape));
}

ToolCallForm form_of(ToolDialect dialect) {
  if (dialect == ToolDialect::kLlama3Json) return ToolCallForm::kLlama3;
  return dialect == ToolDialect::kMistral ? ToolCallForm::kMistral : ToolCallForm::kHermes;
}

// The grammar of the calls that tool_choice demands, in the model's dialect.
Grammar forced_calls_grammar(const ApiRequest& request, const ForcedCallStyle& style) {
  const bool is_named = request.tool_choice->kind == ToolChoice::Kind::kNamed;
  std::vector<ToolSignature> tools;
  for (size_t i = 0; i < request.tools.size(); ++i) {
    const ApiTool& tool = request.tools[i];
    if (is_named && tool.name != request.tool_choice->name) continue;
    tools.push_back({tool.name, arguments_schema(tool), where_of(i)});
  }
  if (is_enforceable(style.dialect)) {
    return tool_call_grammar(tools, {.form = form_of(style.dialect),
                                     .may_have_several = !is_named && request.allows_parallel_calls,
                                     .special_marks = style.special_marks});
  }
  if (!is_named) return calls_grammar(request);
  return json_schema_grammar(tools.front().parameters, tools.front().where);
}

Grammar choice_grammar(const OutputFormat& format) {
  GrammarBuilder builder(format.field);
  std::vector<ExprId> texts;
  for (const std::string& text : format.choices) texts.push_back(builder.text(text));
  return builder.finish(builder.choice(texts));
}

Grammar grammar_of(const ApiRequest& request, const ForcedCallStyle& style) {
  const OutputFormat& format = request.output_format;
  switch (format.kind) {
    case OutputFormat::Kind::kJsonObject:
      return json_object_grammar();
    case OutputFormat::Kind::kJsonSchema:
      return json_schema_grammar(format.schema, format.field);
    case OutputFormat::Kind::kRegex:
      return regex_grammar(format.text, format.field);
    case OutputFormat::Kind::kChoice:
      return choice_grammar(format);
    case OutputFormat::Kind::kGrammar:
      return text_grammar(format.text, format.field);
    case OutputFormat::Kind::kText:
      break;
  }
  return forced_calls_grammar(request, style);
}

// A key that is equal for requests with equal constraints.
std::string key_of(const ApiRequest& request) {
  const OutputFormat& format = request.output_format;
  if (format.kind != OutputFormat::Kind::kText) {
    return str(static_cast<int>(format.kind), format.schema, OrderedJson(format.choices),
               format.text);
  }
  return str(static_cast<int>(request.tool_choice->kind), " ", request.tool_choice->name, " ",
             request.allows_parallel_calls, request.tools_json);
}

// "response_format.json_schema.schema#/properties/a: ..." is about this field.
std::string field_of(const std::string& message) {
  return message.substr(0, message.find_first_of("#: "));
}

}  // namespace

bool is_constrained(const ApiRequest& request) {
  if (request.output_format.kind != OutputFormat::Kind::kText) return true;
  return request.tool_choice && (request.tool_choice->kind == ToolChoice::Kind::kRequired ||
                                 request.tool_choice->kind == ToolChoice::Kind::kNamed);
}

std::string constraint_field(const ApiRequest& request) {
  return request.output_format.kind != OutputFormat::Kind::kText ? request.output_format.field
                                                                 : "tools";
}

void report_unenforced(ApiRequest& request) {
  const OutputFormat& format = request.output_format;
  if (format.kind == OutputFormat::Kind::kJsonSchema) {
    if (has_unenforced_unique_items(format.schema)) {
      request.ignored.add({}, format.field + ".uniqueItems");
    }
  } else if (is_constrained(request)) {
    const bool has_some = std::any_of(
        request.tools.begin(), request.tools.end(),
        [](const ApiTool& tool) { return has_unenforced_unique_items(tool.parameters); });
    if (has_some) request.ignored.add("tools[].function.parameters", "uniqueItems");
  }
}

ConstraintCompiler::ConstraintCompiler(std::shared_ptr<const Tokenizer> tokenizer,
                                       std::vector<int32_t> eos_token_ids, ToolDialect dialect,
                                       size_t num_bytes_max)
    : tokenizer_(std::move(tokenizer)),
      eos_token_ids_(std::move(eos_token_ids)),
      style_{.dialect = dialect, .special_marks = {}},
      memory_(std::make_shared<MaskMemory>(kMaskBytesMax)),
      budget_(std::make_shared<ByteBudget>(num_bytes_max)),
      cache_(kUnusedBytesMax) {
  for (const std::string_view mark : kToolCallMarks) {
    const auto id = tokenizer_->id_of(mark);
    if (id && tokenizer_->is_special(*id)) style_.special_marks.emplace_back(mark);
  }
}

std::shared_ptr<const TokenTrie> ConstraintCompiler::trie() {
  const std::lock_guard lock(trie_mutex_);
  if (!trie_) {
    trie_ = TokenTrie::from_tokenizer(*tokenizer_, eos_token_ids_, style_.special_marks);
  }
  return trie_;
}

std::shared_ptr<const ReasoningTokens> ConstraintCompiler::reasoning_tokens(
    const ReasoningDialect& dialect) {
  const std::lock_guard lock(reasoning_mutex_);
  if (!reasoning_tokens_ || &reasoning_tokens_->dialect() != &dialect) {
    reasoning_tokens_ = std::make_shared<const ReasoningTokens>(tokenizer_, trie(), dialect);
  }
  return reasoning_tokens_;
}

std::shared_ptr<const CompiledConstraint> ConstraintCompiler::behind_reasoning(
    std::shared_ptr<const CompiledConstraint> constraint, const ApiRequest& request,
    const ReasoningStart& start) {
  if (start.dialect == nullptr) return constraint;
  if (constraint == nullptr && !request.thinking_token_budget) return constraint;
  if (make_reasoning_parser(start)->phase() == ReasoningPhase::kAnswer) return constraint;
  try {
    return constraint_behind_reasoning(reasoning_tokens(*start.dialect), start,
                                       request.thinking_token_budget, std::move(constraint));
  } catch (const UnsupportedError& error) {
    throw ApiError(error.what(),
                   {.param = "thinking_token_budget", .code = "unsupported_parameter"});
  }
}

std::shared_ptr<const CompiledConstraint> ConstraintCompiler::find(const ApiRequest& request) {
  return is_constrained(request) ? cache_.find(key_of(request)) : nullptr;
}

ConstraintCache::Compiled ConstraintCompiler::reserve(ConstraintCache::Compiled constraint,
                                                      size_t num_key_bytes,
                                                      const ApiRequest& request) {
  const size_t num_bytes = constraint->num_bytes() + num_key_bytes;
  const size_t num_bytes_max = budget_->stats().num_bytes_max;
  if (num_bytes > num_bytes_max) {
    const std::string field = constraint_field(request);
    throw invalid_field(
        field, str(field, ": expected a schema or grammar that needs at most ",
                   format_bytes(static_cast<double>(num_bytes_max)), " of memory, got one that ",
                   "needs ", format_bytes(static_cast<double>(num_bytes)), ". Make it smaller."));
  }
  const auto counted = std::make_shared<CountedConstraint>(
      CountedConstraint{ByteReservation(budget_), std::move(constraint)});
  if (!counted->bytes.try_grow(num_bytes)) {
    cache_.drop_unused();
    if (!counted->bytes.try_grow(num_bytes)) {
      throw overloaded(
          "The schemas and grammars of the requests that wait or run need all memory that there is "
          "for them. Try again later, with a smaller one, or with the same one as other requests.",
          kRetryAfterS);
    }
  }
  return {counted, counted->constraint.get()};
}

std::shared_ptr<const CompiledConstraint> ConstraintCompiler::compile(const ApiRequest& request) {
  if (!is_constrained(request)) return nullptr;
  const std::string key = key_of(request);
  return cache_.get(key, [&] {
    try {
      return reserve(compile_constraint(trie(), grammar_of(request, style_), {}, memory_),
                     key.size(), request);
    } catch (const InputError& error) {
      throw invalid_field(field_of(error.what()), error.what());
    } catch (const UnsupportedError& error) {
      throw ApiError(error.what(),
                     {.param = field_of(error.what()), .code = "unsupported_parameter"});
    }
  });
}

std::shared_ptr<const CompiledConstraint> ConstraintCompiler::of_tokens(const ApiRequest& request,
                                                                        int64_t vocab_size) const {
  if (request.bad_words.empty() && request.allowed_token_ids.empty()) return nullptr;
  TokenFilter filter = {.num_ids = static_cast<size_t>(vocab_size),
                        .allowed = request.allowed_token_ids,
                        .banned = {}};
  for (const std::string& word : request.bad_words) {
    for (const char* space : {"", " "}) {
      std::vector<int32_t> ids = tokenizer_->encode(space + word, /*add_special_tokens=*/false);
      if (!ids.empty()) filter.banned.push_back(std::move(ids));
    }
  }
  return make_token_constraint(std::move(filter));
}

}  // namespace halley
