#include "halley/evaluation/evaluation.h"

#include <memory>
#include <span>
#include <sstream>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/engine/perplexity.h"
#include "halley/engine/window_forward.h"
#include "halley/evaluation/logits_file.h"

namespace halley {
namespace {

constexpr size_t kTaskBytesMax = size_t{1} << 30;

auto steps_of(const EvalProgress& on_progress) {
  return [&on_progress](auto num_done, auto num_total) {
    on_progress(static_cast<double>(num_done), static_cast<double>(num_total));
  };
}

}  // namespace

OrderedJson eval_perplexity(const EvaluatedModel& model, const EvalText& text, int64_t window,
                            const std::string& logits_path, const EvalProgress& on_progress) {
  CausalLm& causal_lm = *model.loaded.model;
  std::unique_ptr<LogitsFile> logits_file;
  PerplexityOptions options;
  options.kv_dtype = model.kv_dtype;
  options.on_progress = steps_of(on_progress);
  if (!logits_path.empty()) {
    const int64_t num_rows = num_scored_tokens(static_cast<int64_t>(text.ids.size()), window);
    logits_file = std::make_unique<LogitsFile>(logits_path, text.ids, num_rows,
                                               causal_lm.shape().vocab_size, window);
    options.on_logits = [&](int64_t token_index, std::span<const float> logits) {
      logits_file->append(logits, text.ids.at(static_cast<size_t>(token_index)));
    };
  }
  const PerplexityResult result = compute_perplexity(causal_lm, text.ids, window, options);
  if (logits_file) logits_file->finish();
  return {{"text", text.path},
          {"perplexity", result.perplexity},
          {"num_tokens", result.num_tokens},
          {"nll", result.nll},
          {"window", window},
          {"kv_dtype", name_of(model.kv_dtype)},
          {"window_nll", result.window_nll}};
}

LogitComparison compare_with(const EvaluatedModel& model, Reference& reference,
                             const EvalText& text, const WindowOptions& windows,
                             const EvalProgress& on_progress) {
  const ReferenceLogits logits = reference.start(text, windows);
  const std::vector<ComparedModel> models = {{model.loaded.model.get(), model.kv_dtype}};
  ComparisonOptions options;
  options.window = windows.window;
  options.pool = model.loaded.pool.get();
  options.on_progress = steps_of(on_progress);
  return compare_logits(logits, reference.vocab_size(), models, text.ids, options).front();
}

OrderedJson json_of(const Estimate& estimate) {
  OrderedJson json = {{"value", estimate.value}, {"low", nullptr}, {"high", nullptr}};
  if (estimate.interval) {
    json["low"] = estimate.interval->low;
    json["high"] = estimate.interval->high;
  }
  return json;
}

OrderedJson json_of(const LogitComparison& comparison) {
  return {{"perplexity", comparison.perplexity},
          {"reference_perplexity", comparison.reference_perplexity},
          {"num_tokens", comparison.num_tokens},
          {"num_windows", comparison.num_windows},
          {"log_perplexity_increase", json_of(comparison.log_perplexity_increase)},
          {"perplexity_ratio", json_of(comparison.perplexity_ratio)},
          {"kl_divergence", json_of(comparison.kl_divergence)},
          {"kl_p99", comparison.kl_p99},
          {"kl_max", comparison.kl_max},
          {"top1_agreement", json_of(comparison.top1_agreement)}};
}

OrderedJson json_of(const LogitComparison& comparison, const EvaluatedModel& model,
                    const Reference& reference, const EvalText& text, int64_t window) {
  OrderedJson json = {{"text", text.path}};
  json.update(json_of(comparison));
  json["window"] = window;
  json["kv_dtype"] = name_of(model.kv_dtype);
  json["reference"] = reference.path();
  if (reference.is_model()) json["reference_kv_dtype"] = name_of(reference.kv_dtype());
  json["intervals"] = kIntervalsInWords;
  return json;
}

namespace {

// The items of a file, and all their choices as tokens.
struct Task {
  std::vector<ChoiceItem> items;
  std::vector<EncodedChoice> choices;
};

Task load_task(const std::string& path, const Tokenizer& tokenizer) {
  Task task;
  std::istringstream lines(read_text_file(path, kTaskBytesMax));
  std::string line;
  for (size_t line_number = 1; std::getline(lines, line); ++line_number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = str(path, ": line ", line_number);
    task.items.push_back(parse_choice_item(parse_json(line, where), where));
    if (std::string(task.items.back().layout) != task.items.front().layout) {
      throw InputError(str(where, ": expected an item of ", task.items.front().layout,
                           " as on the lines before, got one of ", task.items.back().layout, "."));
    }
    for (const Choice& choice : task.items.back().choices) {
      task.choices.push_back(encode_choice(tokenizer, choice, where));
    }
  }
  if (task.items.empty()) throw InputError(str(path, ": expected at least one item, got none."));
  return task;
}

}  // namespace

TaskResult eval_task(const EvaluatedModel& model, const Tokenizer& tokenizer,
                     const std::string& path, const EvalProgress& on_progress) {
  const Task task = load_task(path, tokenizer);
  ScoringOptions scoring;
  scoring.kv_dtype = model.kv_dtype;
  scoring.on_progress = steps_of(on_progress);
  std::vector<double> scores = score_choices(*model.loaded.model, task.choices, scoring);
  const ChoiceAccuracy accuracy = accuracy_of(task.items, scores);
  return {path, task.items.front().layout, task.items.size(), accuracy, std::move(scores)};
}

OrderedJson json_of(const TaskResult& result, KvDType kv_dtype) {
  return {{"task", result.path},
          {"layout", result.layout},
          {"num_items", result.num_items},
          {"accuracy", result.accuracy.accuracy},
          {"accuracy_stderr", result.accuracy.accuracy_error},
          {"accuracy_norm", result.accuracy.normalized},
          {"accuracy_norm_stderr", result.accuracy.normalized_error},
          {"kv_dtype", name_of(kv_dtype)},
          {"log_likelihoods", result.log_likelihoods}};
}

std::vector<float> eval_logits(const EvaluatedModel& model, std::vector<int32_t> ids) {
  const int64_t chunk_rows = PerplexityOptions{}.chunk_rows;
  CausalLm& causal_lm = *model.loaded.model;
  const int64_t num_ids_max = causal_lm.shape().max_positions - 1;
  if (ids.empty() || static_cast<int64_t>(ids.size()) > num_ids_max) {
    throw InputError(
        str("logits: expected 1 to ", num_ids_max, " token ids, got ", ids.size(), "."));
  }
  // A window's last token gets no row: one more token is behind those that were given.
  ids.push_back(ids.back());
  const auto window = static_cast<int64_t>(ids.size());
  check_windows(causal_lm.shape(), ids, window, chunk_rows);
  WindowForward forward(causal_lm, ids, window, chunk_rows, model.kv_dtype);
  std::vector<float> logits;
  for (const WindowChunk& chunk : cut_windows(window, window, chunk_rows)) {
    const std::span<const float> rows = forward.run(chunk);
    logits.insert(logits.end(), rows.begin(), rows.end());
  }
  return logits;
}

}  // namespace halley
