// The load that `halley bench serve` sends: arrival times, lengths and texts.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halley/checkpoint/tokenizer/tokenizer.h"

namespace halley::cli {

struct ServeLoadOptions {
  std::string model = {};
  std::string endpoint = "/v1/completions";
  std::optional<int64_t> num_prompts = {};  // absent: 1000, or all of a trace
  double request_rate = std::numeric_limits<double>::infinity();
  double burstiness = 1;
  int64_t burst_size = 1;
  double peak_rate = 0, peak_period = 60;  // as ArrivalOptions' peak_rate and period
  std::string trace = {};                  // a file; replaces rate and lengths
  double trace_start = 0, trace_seconds = std::numeric_limits<double>::infinity();  // of its time
  double rate_scale = 1;
  int64_t trace_max_input = 0, trace_max_output = 0;  // 0: no limit
  int64_t input_len = 1024, output_len = 128;
  double range_ratio = 0;
  std::string tokenizer = {};  // a model's directory
  uint64_t seed = 0;
  double temperature = 0;
  bool ignore_eos = false;
  bool has_continuous_usage = false;  // ask for the usage in every event
};

/// All requests of a run. The body of a request is made when it is sent and depends only on the
/// seed and the request's index.
class ServeLoad {
 public:
  /// Throws InputError if the trace or the tokenizer cannot be read, if the window has no request,
  /// or if the peak is below the rate.
  explicit ServeLoad(const ServeLoadOptions& options);

  const std::vector<double>& arrivals() const { return arrivals_; }
  const std::vector<int64_t>& input_lens() const { return input_lens_; }
  /// Requests of a trace whose lengths were cut.
  size_t num_shortened() const { return num_shortened_; }
  /// The seconds in which requests are sent: those of the trace's window, else up to the last
  /// request. 0 if all are sent at once.
  int64_t num_seconds() const { return num_seconds_; }
  /// JSON.
  std::string make_body(size_t index) const;

 private:
  void take_trace();
  void draw_load();

  ServeLoadOptions options_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<int32_t> plain_ids_;  // without special tokens
  std::vector<double> arrivals_;    // seconds
  std::vector<int64_t> input_lens_, output_lens_;
  size_t num_shortened_ = 0;
  int64_t num_seconds_ = 0;
};

}  // namespace halley::cli
