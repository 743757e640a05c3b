#include "halley/cli/bench_serve_load.h"

#include <array>
#include <random>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/model_dir.h"
#include "halley/json/json.h"

namespace halley::cli {
namespace {

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
  traffic_ = make_traffic(options.traffic);
}

std::string ServeLoad::make_body(size_t index) const {
  const uint64_t seed = options_.traffic.seed;
  std::seed_seq seeds{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                      static_cast<uint32_t>(index)};
  std::mt19937 random(seeds);
  const auto pick = [&](size_t count) {
    return std::uniform_int_distribution<size_t>(0, count - 1)(random);
  };
  std::vector<int32_t> ids;
  std::string text;
  for (int64_t i = 0; i < traffic_.input_lens[index]; ++i) {
    if (tokenizer_) {
      ids.push_back(plain_ids_[pick(plain_ids_.size())]);
    } else {
      text += kWords.at(pick(kWords.size()));
    }
  }
  Json body = {{"model", options_.model},
               {"max_tokens", traffic_.output_lens[index]},
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
