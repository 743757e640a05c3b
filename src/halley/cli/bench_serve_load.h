// The load that `halley bench serve` sends: arrival times, lengths and texts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/cli/traffic.h"

namespace halley::cli {

struct ServeLoadOptions {
  std::string model = {};
  std::string endpoint = "/v1/completions";
  TrafficOptions traffic = {};
  std::string tokenizer = {};  // a model's directory
  double temperature = 0;
  bool ignore_eos = false;
  bool has_continuous_usage = false;  // ask for the usage in every event
};

/// All requests of a run. The body of a request is made when it is sent and depends only on the
/// seed and the request's index.
class ServeLoad {
 public:
  /// Throws InputError if the tokenizer cannot be read, and as make_traffic().
  explicit ServeLoad(const ServeLoadOptions& options);

  const Traffic& traffic() const { return traffic_; }
  /// JSON.
  std::string make_body(size_t index) const;

 private:
  ServeLoadOptions options_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<int32_t> plain_ids_;  // without special tokens
  Traffic traffic_;
};

}  // namespace halley::cli
