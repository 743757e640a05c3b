#include "halley/engine/multiple_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/engine/kv_cache.h"
#include "halley/sampling/base/sampler.h"

namespace halley {
namespace {

constexpr int64_t kPageTokens = 16;

// A choice as the model runs it, without its last token, which predicts nothing.
struct Run {
  std::span<const int32_t> inputs;
  std::span<const int32_t> targets;  // predicted by the last rows
  double log_likelihood = 0;
};

Run run_of(const EncodedChoice& choice, const ModelShape& shape) {
  const auto num_targets = static_cast<size_t>(choice.num_continuation);
  if (choice.num_continuation > shape.max_positions) {
    throw InputError(str("choice: expected a continuation of at most ", shape.max_positions,
                         " tokens, which the model allows, got ", num_targets, "."));
  }
  for (const int32_t id : choice.ids) {
    if (id >= 0 && id < shape.vocab_size) continue;
    throw InputError(str("choice: expected token ids of 0 to ", shape.vocab_size - 1, ", got ", id,
                         ". Check that the tokenizer belongs to the model."));
  }
  const size_t num_inputs =
      std::min(choice.ids.size() - 1, static_cast<size_t>(shape.max_positions));
  const std::span<const int32_t> ids = choice.ids;
  return {ids.last(num_inputs + 1).first(num_inputs), ids.last(num_targets)};
}

// Runs groups of choices with one cache: a group's choices together, or one long choice in chunks.
class Scorer {
 public:
  Scorer(CausalLm& model, const StepLimits& limits, int64_t num_pages)
      : model_(model),
        batch_rows_(limits.num_rows),
        cache_(prepare_cache(model, limits, num_pages)) {}

  void score(std::span<Run> group) {
    if (group.size() == 1) return score_in_chunks(group.front());
    std::vector<std::vector<int32_t>> page_tables;
    std::vector<BatchSequence> sequences;
    std::vector<int32_t> ids;
    begin();
    int32_t next_page = 0;
    for (const Run& run : group) {
      page_tables.push_back(pages(next_page, run));
      next_page += static_cast<int32_t>(page_tables.back().size());
      sequences.push_back({.first_row = static_cast<int64_t>(ids.size()),
                           .num_new_tokens = static_cast<int64_t>(run.inputs.size()),
                           .num_past_tokens = 0,
                           .page_table = page_tables.back()});
      add_targets(static_cast<int64_t>(ids.size()), 0, run);
      ids.insert(ids.end(), run.inputs.begin(), run.inputs.end());
    }
    forward(ids, sequences);
    size_t row = 0;
    for (Run& run : group) add_likelihood(run, 0, run.targets.size(), row);
  }

 private:
  void score_in_chunks(Run& run) {
    const std::vector<int32_t> page_table = pages(0, run);
    const auto num_inputs = static_cast<int64_t>(run.inputs.size());
    size_t num_scored = 0;
    for (int64_t past = 0; past < num_inputs; past += batch_rows_) {
      const int64_t num_rows = std::min(batch_rows_, num_inputs - past);
      const BatchSequence sequence = {.first_row = 0,
                                      .num_new_tokens = num_rows,
                                      .num_past_tokens = past,
                                      .page_table = page_table};
      begin();
      const size_t num_targets = add_targets(-past, past, run, past + num_rows);
      forward(run.inputs.subspan(static_cast<size_t>(past), static_cast<size_t>(num_rows)),
              {&sequence, 1});
      size_t row = 0;
      add_likelihood(run, num_scored, num_targets, row);
      num_scored += num_targets;
    }
  }

  static std::vector<int32_t> pages(int32_t first, const Run& run) {
    std::vector<int32_t> table;
    const auto count = static_cast<int32_t>(
        ceil_div<int64_t>(static_cast<int64_t>(run.inputs.size()), kPageTokens));
    for (int32_t i = 0; i < count; ++i) table.push_back(first + i);
    return table;
  }

  void begin() { logit_rows_.clear(); }

  // Asks for the logits of the run's inputs [begin, end) that predict targets; input i is row
  // `row_offset` + i of the batch. Returns how many there are.
  size_t add_targets(int64_t row_offset, int64_t begin, const Run& run,
                     int64_t end = std::numeric_limits<int64_t>::max()) {
    const auto num_inputs = static_cast<int64_t>(run.inputs.size());
    const int64_t first = num_inputs - static_cast<int64_t>(run.targets.size());
    size_t count = 0;
    for (int64_t i = std::max(first, begin); i < std::min(num_inputs, end); ++i, ++count) {
      logit_rows_.push_back(static_cast<int32_t>(row_offset + i));
    }
    return count;
  }

  void forward(std::span<const int32_t> ids, std::span<const BatchSequence> sequences) {
    const int64_t vocab_size = model_.shape().vocab_size;
    logits_.resize(logit_rows_.size() * static_cast<size_t>(vocab_size));
    const ForwardBatch batch = {
        .token_ids = ids, .sequences = sequences, .logit_rows = logit_rows_};
    model_.forward(
        batch, cache_.view(),
        f32_matrix(logits_.data(), static_cast<int64_t>(logit_rows_.size()), vocab_size));
  }

  // Adds the next `count` targets, whose logits begin at `row`, and advances it.
  void add_likelihood(Run& run, size_t first_target, size_t count, size_t& row) const {
    const auto vocab_size = static_cast<size_t>(model_.shape().vocab_size);
    for (size_t i = first_target; i < first_target + count; ++i, ++row) {
      const auto logits = std::span<const float>(logits_).subspan(row * vocab_size, vocab_size);
      run.log_likelihood +=
          double{logits[static_cast<size_t>(run.targets[i])]} - log_sum_exp(logits);
    }
    if (std::isfinite(run.log_likelihood)) return;
    throw CheckpointError(str("logits: expected a finite likelihood of a choice, got ",
                              run.log_likelihood,
                              ". The weights may be damaged, or the model overflows its number "
                              "format."));
  }

  CausalLm& model_;
  int64_t batch_rows_;
  KvCache cache_;
  std::vector<int32_t> logit_rows_;
  std::vector<float> logits_;
};

int64_t num_pages_of(std::span<const Run> group) {
  int64_t num_pages = 0;
  for (const Run& run : group) {
    num_pages += ceil_div<int64_t>(static_cast<int64_t>(run.inputs.size()), kPageTokens);
  }
  return num_pages;
}

// Raises the limits to the size of the group's steps.
void include(std::span<const Run> group, StepLimits& limits) {
  int64_t num_targets = 0;
  for (const Run& run : group) {
    num_targets += static_cast<int64_t>(run.targets.size());
    limits.max_length = std::max(limits.max_length, static_cast<int64_t>(run.inputs.size()));
  }
  limits.num_sequences = std::max(limits.num_sequences, static_cast<int64_t>(group.size()));
  limits.num_logit_rows = std::max(limits.num_logit_rows, std::min(num_targets, limits.num_rows));
}

// Ends of the groups: consecutive choices with `batch_rows` tokens together.
std::vector<size_t> group_ends(std::span<const Run> runs, int64_t batch_rows) {
  std::vector<size_t> ends;
  size_t num_rows = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (i > 0 && num_rows + runs[i].inputs.size() > static_cast<size_t>(batch_rows)) {
      ends.push_back(i);
      num_rows = 0;
    }
    num_rows += runs[i].inputs.size();
  }
  if (!runs.empty()) ends.push_back(runs.size());
  return ends;
}

double standard_error(double share, size_t count) {
  return count < 2 ? 0 : std::sqrt(share * (1 - share) / static_cast<double>(count - 1));
}

}  // namespace

std::vector<double> score_choices(CausalLm& model, std::span<const EncodedChoice> choices,
                                  const ScoringOptions& options) {
  HALLEY_CHECK(options.batch_rows >= 1, options.batch_rows);
  std::vector<Run> runs;
  for (const EncodedChoice& choice : choices) runs.push_back(run_of(choice, model.shape()));
  const std::vector<size_t> ends = group_ends(runs, options.batch_rows);
  const std::span<Run> all = runs;
  StepLimits limits = {.num_rows = options.batch_rows,
                       .kv_dtype = options.kv_dtype.value_or(model.shape().kv_dtype_default),
                       .page_tokens = kPageTokens};
  int64_t num_pages = 1;
  for (size_t i = 0, begin = 0; i < ends.size(); begin = ends[i++]) {
    const std::span<const Run> group = all.subspan(begin, ends[i] - begin);
    num_pages = std::max(num_pages, num_pages_of(group));
    include(group, limits);
  }
  Scorer scorer(model, limits, num_pages);
  for (size_t i = 0, begin = 0; i < ends.size(); begin = ends[i++]) {
    scorer.score(all.subspan(begin, ends[i] - begin));
    if (options.on_progress) options.on_progress(ends[i], runs.size());
  }
  std::vector<double> log_likelihoods;
  for (const Run& run : runs) log_likelihoods.push_back(run.log_likelihood);
  return log_likelihoods;
}

ChoiceAccuracy accuracy_of(std::span<const ChoiceItem> items,
                           std::span<const double> log_likelihoods) {
  size_t num_right = 0, num_right_normalized = 0, begin = 0;
  for (const ChoiceItem& item : items) {
    const auto scores = log_likelihoods.subspan(begin, item.choices.size());
    begin += item.choices.size();
    std::vector<double> normalized;
    for (size_t i = 0; i < scores.size(); ++i) {
      const size_t num_bytes = std::max<size_t>(1, item.choices[i].continuation.size() - 1);
      normalized.push_back(scores[i] / static_cast<double>(num_bytes));
    }
    const auto best = std::max_element(scores.begin(), scores.end()) - scores.begin();
    const auto best_normalized =
        std::max_element(normalized.begin(), normalized.end()) - normalized.begin();
    num_right += static_cast<size_t>(best) == item.answer ? 1 : 0;
    num_right_normalized += static_cast<size_t>(best_normalized) == item.answer ? 1 : 0;
  }
  const double accuracy = static_cast<double>(num_right) / static_cast<double>(items.size());
  const double normalized =
      static_cast<double>(num_right_normalized) / static_cast<double>(items.size());
  return {accuracy, standard_error(accuracy, items.size()), normalized,
          standard_error(normalized, items.size())};
}

}  // namespace halley
