// Multiple choice: a model's likelihood of each continuation of a context.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/json/json.h"
#include "halley/models/base/causal_lm.h"

namespace halley {

/// A context and a continuation whose likelihood is scored.
struct Choice {
  std::string context;
  std::string continuation;  // begins with the space that separates them
};

struct ChoiceItem {
  const char* layout = "";  // "PIQA", "ARC", "HellaSwag", "WinoGrande"
  std::vector<Choice> choices;
  size_t answer = 0;  // index of the right one
};

/// Parses an item of a task file, whose fields tell the task, into the texts of lm-eval (tasks
/// piqa, arc_easy, hellaswag, winogrande):
///   PIQA        goal, sol1, sol2, label
///   ARC         question (a text, or an object with stem and choices), choices {text, label} or a
///               list of such objects, answerKey
///   HellaSwag   ctx_a and ctx_b (or ctx), endings, label; activity_label if there is one
///   WinoGrande  sentence with a "_", option1, option2, answer
/// Throws InputError, beginning with `where`, that names the field.
ChoiceItem parse_choice_item(const Json& json, const std::string& where);

/// A choice in tokens.
struct EncodedChoice {
  std::vector<int32_t> ids;  // context, then continuation; no token is added
  int64_t num_continuation = 0;
};

/// Encodes as lm-eval does: spaces at the end of the context move to the continuation; both are
/// encoded together and split at the token count of the context alone. Throws InputError,
/// beginning with `where`, if either part has no token.
EncodedChoice encode_choice(const Tokenizer& tokenizer, const Choice& choice,
                            const std::string& where);

struct ScoringOptions {
  std::optional<KvDType> kv_dtype;  // absent: the model's own
  int64_t batch_rows = 512;         // tokens of one forward, at least 1; a longer choice takes
                                    // several
  /// Called after every batch with the choices scored so far and their total.
  std::function<void(size_t num_done, size_t num_total)> on_progress = {};
};

/// The log likelihood (nats) of each choice's continuation. A choice that is longer than the
/// model's positions is truncated at its beginning. Throws InputError if a continuation alone is
/// longer or an id is outside the vocabulary, CheckpointError if a likelihood is not finite.
std::vector<double> score_choices(CausalLm& model, std::span<const EncodedChoice> choices,
                                  const ScoringOptions& options = {});

/// Shares of right answers. A standard error is sqrt(p (1 - p) / (n - 1)); 0 for one item.
struct ChoiceAccuracy {
  double accuracy = 0, accuracy_error = 0;
  /// Accuracy by log likelihood per byte of the continuation, without its first space.
  double normalized = 0, normalized_error = 0;
};

/// `log_likelihoods` are those of all items' choices in order. Ties count for the first one.
ChoiceAccuracy accuracy_of(std::span<const ChoiceItem> items,
                           std::span<const double> log_likelihoods);

}  // namespace halley
