#include "halley/cli/bench_profile.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <span>
#include <utility>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cli/batch_run.h"
#include "halley/engine/kv_cache.h"
#include "halley/models/base/op_summary.h"

namespace halley::cli {
namespace {

constexpr int64_t kPageTokens = 16;
constexpr int kNumProfiles = 3;  // runs of a step; the fastest is kept

double total_us(const std::vector<OpTime>& times) {
  double sum = 0;
  for (const OpTime& time : times) sum += time.duration_us;
  return sum;
}

/// Sequences of random tokens, each with its own pages.
class ProfiledBatch {
 public:
  ProfiledBatch(CausalLm& model, const ProfileSizes& sizes, const StepLimits& limits)
      : model_(model),
        requests_(make_batch(sizes.batch_size, sizes.input_len + sizes.output_len, 1,
                             model.shape().vocab_size)),
        num_sequence_pages_(ceil_div(sizes.input_len + sizes.output_len, kPageTokens)),
        pages_(static_cast<size_t>(num_sequence_pages_ * sizes.batch_size)),
        logits_(static_cast<size_t>(sizes.batch_size * model.shape().vocab_size)),
        cache_(prepare_cache(model, limits, num_sequence_pages_ * sizes.batch_size)) {
    std::iota(pages_.begin(), pages_.end(), 0);
  }

  /// The next step: sequences [first, first + count) with `num_new` tokens after `num_past`.
  void plan(int64_t first, int64_t count, int64_t num_past, int64_t num_new) {
    token_ids_.clear();
    sequences_.clear();
    rows_.clear();
    for (int64_t i = first; i < first + count; ++i) {
      const std::span<const int32_t> ids = requests_[static_cast<size_t>(i)].prompt_ids;
      const auto chunk = ids.subspan(static_cast<size_t>(num_past), static_cast<size_t>(num_new));
      sequences_.push_back({static_cast<int64_t>(token_ids_.size()), num_new, num_past,
                            std::span(pages_).subspan(static_cast<size_t>(i * num_sequence_pages_),
                                                      static_cast<size_t>(num_sequence_pages_))});
      token_ids_.insert(token_ids_.end(), chunk.begin(), chunk.end());
      rows_.push_back(static_cast<int32_t>(token_ids_.size()) - 1);
    }
  }

  void run() { model_.forward(batch(), cache_.view(), logits()); }
  std::vector<OpTime> profile() { return model_.profile(batch(), cache_.view(), logits()); }
  std::vector<OpTime> costs() { return model_.op_costs(batch(), cache_.view(), logits()); }

 private:
  ForwardBatch batch() const { return {token_ids_, sequences_, rows_}; }
  Matrix logits() {
    return f32_matrix(logits_.data(), static_cast<int64_t>(rows_.size()),
                      model_.shape().vocab_size);
  }

  CausalLm& model_;
  std::vector<GenerateRequest> requests_;
  int64_t num_sequence_pages_;
  std::vector<int32_t> pages_;
  std::vector<float> logits_;
  KvCache cache_;
  std::vector<int32_t> token_ids_, rows_;
  std::vector<BatchSequence> sequences_;
};

}  // namespace

std::vector<StepProfile> profile_steps(CausalLm& model, const ProfileSizes& sizes) {
  const int64_t rows_max = std::max(sizes.num_rows_max, sizes.batch_size);
  ProfiledBatch batch(model, sizes,
                      {.num_sequences = sizes.batch_size,
                       .num_rows = rows_max,
                       .num_logit_rows = sizes.batch_size,
                       .max_length = sizes.input_len + sizes.output_len,
                       .kv_dtype = sizes.kv_dtype,
                       .page_tokens = kPageTokens});
  const int64_t num_past = std::max<int64_t>(1, sizes.input_len + sizes.output_len / 2 - 1);
  for (int64_t sequence = 0; sequence < sizes.batch_size; ++sequence) {
    for (int64_t done = 0; done < num_past; done += rows_max) {
      batch.plan(sequence, 1, done, std::min(rows_max, num_past - done));
      batch.run();
    }
  }
  const int64_t num_new = std::min(sizes.input_len, rows_max);
  const int64_t num_prompts = std::clamp<int64_t>(rows_max / num_new, 1, sizes.batch_size);
  std::vector<StepProfile> steps = {{.name = "prefill",
                                     .num_sequences = num_prompts,
                                     .num_rows = num_prompts * num_new,
                                     .num_past = 0,
                                     .times = {}},
                                    {.name = "decode",
                                     .num_sequences = sizes.batch_size,
                                     .num_rows = sizes.batch_size,
                                     .num_past = num_past,
                                     .times = {}}};
  for (StepProfile& step : steps) {
    batch.plan(0, step.num_sequences, step.num_past, step.num_rows / step.num_sequences);
    batch.run();
    for (int i = 0; i < kNumProfiles; ++i) {
      std::vector<OpTime> times = batch.profile();
      if (step.times.empty() || total_us(times) < total_us(step.times)) {
        step.times = std::move(times);
      }
    }
  }
  steps.back().costs = batch.costs();  // the decode step is the one planned last
  return steps;
}

void print_profile(const std::vector<StepProfile>& steps) {
  for (const StepProfile& step : steps) {
    std::printf(
        "Profile of a %s step: %lld sequences, %lld new tokens, %lld cached each: %.3f ms\n",
        step.name.c_str(), static_cast<long long>(step.num_sequences),
        static_cast<long long>(step.num_rows), static_cast<long long>(step.num_past),
        total_us(step.times) / 1e3);
    std::printf("  %-24s %6s %12s %8s\n", "operation", "count", "total us", "share");
    for (const OpTotal& total : summarize_ops(step.times)) {
      std::printf("  %-24s %6lld %12.1f %6.1f %%\n", total.name.c_str(),
                  static_cast<long long>(total.count), total.total_us, 100 * total.share);
    }
    if (step.costs.empty()) continue;
    std::printf("  As one graph %.3f ms; shorter without\n", step.costs[0].duration_us / 1e3);
    for (size_t i = 1; i < step.costs.size(); ++i) {
      const OpTime& cost = step.costs[i];
      std::printf("  %-24s %6s %12.1f %6.1f %%\n", cost.name.c_str(), "", cost.duration_us,
                  100 * cost.duration_us / step.costs[0].duration_us);
    }
  }
}

OrderedJson json_of(const std::vector<StepProfile>& steps) {
  OrderedJson json = OrderedJson::array();
  for (const StepProfile& step : steps) {
    OrderedJson operations = OrderedJson::array();
    for (const OpTotal& total : summarize_ops(step.times)) {
      operations.push_back({{"name", total.name},
                            {"count", total.count},
                            {"total_us", total.total_us},
                            {"share", total.share}});
    }
    OrderedJson costs = OrderedJson::object();
    for (const OpTime& cost : step.costs) costs[cost.name] = cost.duration_us;
    json.push_back({{"step", step.name},
                    {"num_sequences", step.num_sequences},
                    {"num_rows", step.num_rows},
                    {"num_past", step.num_past},
                    {"total_us", total_us(step.times)},
                    {"operations", std::move(operations)},
                    {"costs_in_graph_us", std::move(costs)}});
  }
  return json;
}

void write_trace(const std::vector<StepProfile>& steps, const std::string& path) {
  OrderedJson events = OrderedJson::array();
  for (size_t i = 0; i < steps.size(); ++i) {
    const StepProfile& step = steps[i];
    const std::string name = str(step.name, ", ", step.num_rows, " tokens");
    events.push_back(
        {{"name", "process_name"}, {"ph", "M"}, {"pid", i}, {"args", {{"name", name}}}});
    for (const OpTime& time : step.times) {
      events.push_back({{"name", time.name},
                        {"cat", op_name_without_layer(time.name)},
                        {"ph", "X"},
                        {"pid", i},
                        {"tid", 0},
                        {"ts", time.start_us},
                        {"dur", time.duration_us}});
    }
  }
  std::ofstream file(path);
  file << OrderedJson{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump() << '\n';
  if (!file.flush()) throw InputError(str(path, ": cannot write."));
}

}  // namespace halley::cli
