// The measurements of `halley eval` on a loaded model, and their results as JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/engine/logit_comparison.h"
#include "halley/engine/multiple_choice.h"
#include "halley/evaluation/reference.h"
#include "halley/json/json.h"
#include "halley/models/options/model_options.h"

namespace halley {

/// Called with the work that is done and all of it; what it throws ends the measurement.
using EvalProgress = std::function<void(double num_done, double num_total)>;

/// A model with the type of its KV cache.
struct EvaluatedModel {
  LoadedModel& loaded;
  KvDType kv_dtype;
};

/// The perplexity on a text: members text, perplexity, num_tokens, nll, window, kv_dtype and
/// window_nll. `logits_path`, where it is not empty, becomes a logits file. Throws as
/// compute_perplexity() and LogitsFile.
OrderedJson eval_perplexity(const EvaluatedModel& model, const EvalText& text, int64_t window,
                            const std::string& logits_path, const EvalProgress& on_progress);

/// Throws as Reference::start() and compare_logits().
LogitComparison compare_with(const EvaluatedModel& model, Reference& reference,
                             const EvalText& text, const WindowOptions& windows,
                             const EvalProgress& on_progress);

/// {"value", "low", "high"}; the bounds are null if there is no interval.
OrderedJson json_of(const Estimate& estimate);
/// All measures of a comparison.
OrderedJson json_of(const LogitComparison& comparison);
/// The same, and what was compared: text, window, types of KV caches, reference, intervals.
OrderedJson json_of(const LogitComparison& comparison, const EvaluatedModel& model,
                    const Reference& reference, const EvalText& text, int64_t window);
/// One line that explains the intervals.
inline constexpr const char* kIntervalsInWords =
    "95 % intervals: means by windows as clusters with Student's t; top-1 by Wilson over tokens";

/// The accuracy on a multiple-choice task.
struct TaskResult {
  std::string path;
  const char* layout = "";  // "PIQA"
  size_t num_items = 0;
  ChoiceAccuracy accuracy;
  std::vector<double> log_likelihoods;  // of all choices of all items
};

/// `path` has one JSON object a line, for parse_choice_item(). Throws InputError where the file has
/// no items or items of several tasks, and as parse_choice_item() and score_choices().
TaskResult eval_task(const EvaluatedModel& model, const Tokenizer& tokenizer,
                     const std::string& path, const EvalProgress& on_progress);
OrderedJson json_of(const TaskResult& result, KvDType kv_dtype);

/// Row i has the logits [V] of the token that follows ids[0] to ids[i]; [num ids, V] row-major.
/// Throws InputError for no ids, more than the model's positions less one, or unknown ones.
std::vector<float> eval_logits(const EvaluatedModel& model, std::vector<int32_t> ids);

}  // namespace halley
