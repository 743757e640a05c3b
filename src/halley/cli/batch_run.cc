#include "halley/cli/batch_run.h"

#include <algorithm>
#include <random>

#include "halley/base/error.h"
#include "halley/engine/generate.h"

namespace halley::cli {

std::vector<GenerateRequest> make_batch(int64_t num_requests, int64_t input_len, int64_t output_len,
                                        int64_t vocab_size) {
  std::mt19937 random(0);
  std::vector<GenerateRequest> requests(static_cast<size_t>(num_requests));
  for (GenerateRequest& request : requests) {
    for (int64_t i = 0; i < input_len; ++i) {
      request.prompt_ids.push_back(
          static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_size)));
    }
    request.sampling.temperature = 0;
    request.sampling.max_tokens = output_len;
    request.sampling.ignore_eos = true;
  }
  return requests;
}

BatchTimes run_batch(Engine& engine, const std::vector<GenerateRequest>& requests) {
  BatchTimes times;
  double last_token = 0;
  for (const GenerateResult& result : generate_all(engine, requests)) {
    if (result.submit.status != Submit::kQueued) throw InputError(result.submit.message);
    if (result.finish_reason == FinishReason::kError) throw DeviceError(result.error);
    times.latency = std::max(times.latency, result.total_seconds);
    if (result.token_seconds.front() > times.first_token) {
      times.first_token = result.token_seconds.front();
      const auto& seconds = result.token_seconds;
      times.decode_steps.clear();
      for (size_t i = 1; i < seconds.size(); ++i) {
        times.decode_steps.push_back(seconds[i] - seconds[i - 1]);
      }
    }
    last_token = std::max(last_token, result.token_seconds.back());
  }
  const auto num_steps = requests.front().sampling.max_tokens - 1;
  if (num_steps > 0) {
    times.output_token = (last_token - times.first_token) / static_cast<double>(num_steps);
  }
  return times;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

}  // namespace halley::cli
