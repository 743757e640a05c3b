#include "halley/cli/bench_serve_load.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/model_dir.h"
#include "halley/client/load/arrivals.h"
#include "halley/client/load/trace.h"
#include "halley/json/json.h"

namespace halley::cli {
namespace {

constexpr size_t kTraceBytesMax = size_t{1} << 30;
constexpr int64_t kNumPrompts = 1000;
constexpr double kSecondsMax = 1e12;  // of a load

// Words that published vocabularies have as one token each, with the space before them.
constexpr std::array<const char*, 32> kWords = {
    " the",  " of",    " and", " to",  " in",   " is",  " that",  " for",   " it",   " with", " as",
    " was",  " on",    " are", " by",  " this", " be",  " from",  " at",    " have", " or",   " an",
    " they", " which", " one", " you", " were", " all", " there", " would", " her",  " about"};

bool is_chat(const std::string& endpoint) {
  return endpoint.find("chat/completions") != std::string::npos;
}

}  // namespace

ServeLoad::ServeLoad(const ServeLoadOptions& options) : options_(options) {
  if (!options.tokenizer.empty()) {
    tokenizer_ = load_tokenizer(check_model_dir(options.tokenizer));
    for (int32_t id = 0; id < tokenizer_->num_ids(); ++id) {
      if (!tokenizer_->is_special(id) && !tokenizer_->token_of(id).empty()) {
        plain_ids_.push_back(id);
      }
    }
    if (plain_ids_.empty()) {
      throw InputError(str("--tokenizer: ", options.tokenizer,
                           ": expected tokens that are not special, got none."));
    }
  }
  if (!options.trace.empty()) {
    take_trace();
  } else {
    draw_load();
  }
  const double length = std::isinf(options.trace_seconds)
                            ? std::floor(arrivals_.back()) + (arrivals_.back() > 0 ? 1 : 0)
                            : std::ceil(options.trace_seconds / options.rate_scale);
  num_seconds_ = std::llround(std::min(length, kSecondsMax));
}

void ServeLoad::take_trace() {
  const std::string& path = options_.trace;
  std::vector<TraceEntry> entries =
      trace_window(parse_trace(read_text_file(path, kTraceBytesMax), path), options_.trace_start,
                   options_.trace_seconds, path);
  if (options_.num_prompts) {
    entries.resize(std::min(entries.size(), static_cast<size_t>(*options_.num_prompts)));
  }
  const auto shorten = [](int64_t length, int64_t limit) {
    return limit > 0 ? std::min(length, limit) : length;
  };
  for (const TraceEntry& entry : entries) {
    arrivals_.push_back(entry.seconds / options_.rate_scale);
    input_lens_.push_back(shorten(entry.input_len, options_.trace_max_input));
    output_lens_.push_back(shorten(entry.output_len, options_.trace_max_output));
    const bool is_whole =
        input_lens_.back() == entry.input_len && output_lens_.back() == entry.output_len;
    num_shortened_ += is_whole ? 0 : 1;
  }
}

void ServeLoad::draw_load() {
  if (options_.peak_rate > 0 && !(options_.peak_rate >= options_.request_rate)) {
    throw InputError(str("--peak-request-rate: expected at least --request-rate, ",
                         options_.request_rate, ", got ", options_.peak_rate, "."));
  }
  const int64_t num_prompts = options_.num_prompts.value_or(kNumPrompts);
  std::mt19937_64 random(options_.seed);
  arrivals_ = make_arrivals({.num_requests = num_prompts,
                             .request_rate = options_.request_rate,
                             .burstiness = options_.burstiness,
                             .burst_size = options_.burst_size,
                             .peak_rate = options_.peak_rate,
                             .period = options_.peak_period},
                            random);
  const auto draw = [&](int64_t length) {
    const auto middle = static_cast<double>(length);
    std::uniform_int_distribution<int64_t> range(
        std::max<int64_t>(1, std::llround(middle * (1 - options_.range_ratio))),
        std::max<int64_t>(1, std::llround(middle * (1 + options_.range_ratio))));
    return range(random);
  };
  for (int64_t i = 0; i < num_prompts; ++i) {
    input_lens_.push_back(draw(options_.input_len));
    output_lens_.push_back(draw(options_.output_len));
  }
}

std::string ServeLoad::make_body(size_t index) const {
  std::seed_seq seeds{static_cast<uint32_t>(options_.seed),
                      static_cast<uint32_t>(options_.seed >> 32), static_cast<uint32_t>(index)};
  std::mt19937 random(seeds);
  const auto pick = [&](size_t count) {
    return std::uniform_int_distribution<size_t>(0, count - 1)(random);
  };
  std::vector<int32_t> ids;
  std::string text;
  for (int64_t i = 0; i < input_lens_[index]; ++i) {
    if (tokenizer_) {
      ids.push_back(plain_ids_[pick(plain_ids_.size())]);
    } else {
      text += kWords.at(pick(kWords.size()));
    }
  }
  Json body = {{"model", options_.model},
               {"max_tokens", output_lens_[index]},
               {"temperature", options_.temperature},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  if (options_.has_continuous_usage) body["stream_options"]["continuous_usage_stats"] = true;
  if (options_.ignore_eos) body["ignore_eos"] = true;
  if (is_chat(options_.endpoint)) {
    if (tokenizer_) text = tokenizer_->decode(ids, true);
    body["messages"] = Json::array({{{"role", "user"}, {"content", text}}});
  } else if (tokenizer_) {
    body["prompt"] = ids;
  } else {
    body["prompt"] = text;
  }
  return body.dump();
}

}  // namespace halley::cli
