#include "halley/cli/sampling_options.h"

#include <algorithm>
#include <charconv>
#include <type_traits>
#include <utility>
#include <variant>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::cli {
namespace {

// "ID:BIAS"
std::pair<int32_t, double> parse_bias(const std::string& text) {
  const size_t colon = text.find(':');
  int32_t id = 0;
  double bias = 0;
  const char* end = text.data() + text.size();
  if (colon != std::string::npos) {
    const char* id_end = text.data() + colon;
    const auto id_result = std::from_chars(text.data(), id_end, id);
    const auto bias_result = std::from_chars(id_end + 1, end, bias);
    if (id_result.ec == std::errc() && id_result.ptr == id_end && bias_result.ec == std::errc() &&
        bias_result.ptr == end) {
      return {id, bias};
    }
  }
  throw InputError(str("--logit-bias: expected ID:BIAS such as 42:-100, got ", quote(text), "."));
}

// "--a-b" for the field "a_b".
std::string option_name(const SamplingField& field) {
  std::string name = str("--", field.name);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace

void add_sampling_options(CLI::App& app, SamplingOptions& options) {
  constexpr const char* kGroup = "Sampling";
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    return app.add_option(name, value, text)->group(kGroup);
  };
  add("--max-tokens,-n", options.max_tokens, "Most tokens to generate")->capture_default_str();
  add("--min-tokens", options.min_tokens, "No stop before this many")->capture_default_str();
  for (const SamplingField& field : sampling_fields()) {
    std::visit(
        [&](auto member) {
          using Value = std::remove_cvref_t<decltype(ChoiceParams{}.*member)>;
          const auto give = [&options, &field](const Value& value) {
            options.given.push_back({&field, value});
          };
          app.add_option_function<Value>(option_name(field), give, field.option_text)
              ->group(kGroup);
        },
        field.member);
  }
  add("--dry-sequence-breaker", options.dry_sequence_breakers,
      "A text that DRY's repetitions do not reach across; may be repeated; none: no text; default: "
      "line end, :, \" and *");
  add("--logit-bias", options.logit_bias, "ID:BIAS, -100 to 100; may be repeated");
  add("--seed", options.seed, "Same seed, same text");
  add("--stop", options.stop, "A text that ends the output; may be repeated");
  add("--stop-token-ids", options.stop_token_ids, "Ids that end the output")->delimiter(',');
  app.add_flag("--include-stop", options.is_stop_included, "Keep the stop text in the output")
      ->group(kGroup);
  app.add_flag("--ignore-eos", options.ignore_eos, "Go on behind the model's end token")
      ->group(kGroup);
  app.add_flag("--keep-special", options.keeps_special_tokens, "Show special tokens in the text")
      ->group(kGroup);
  add("--logprobs", options.num_logprobs, "With --json: log probabilities, and the best N (0-20)")
      ->check(CLI::Range(0, 20));
}

SamplingParams make_sampling_params(const SamplingOptions& options,
                                    const GenerationConfig& generation) {
  SamplingParams params;
  params.max_tokens = options.max_tokens;
  params.min_tokens = options.min_tokens;
  apply_settings(generation.sampling, params);
  apply_settings(options.given, params);
  for (const std::string& text : options.logit_bias) params.logit_bias.insert(parse_bias(text));
  if (!options.dry_sequence_breakers.empty()) {
    params.dry_sequence_breakers = options.dry_sequence_breakers;
    std::erase(params.dry_sequence_breakers, "none");
  }
  params.seed = options.seed;
  params.stop = options.stop;
  params.stop_token_ids = options.stop_token_ids;
  params.include_stop_str_in_output = options.is_stop_included;
  params.ignore_eos = options.ignore_eos;
  params.skip_special_tokens = !options.keeps_special_tokens;
  params.num_logprobs = options.num_logprobs;
  return params;
}

}  // namespace halley::cli
