// A loaded model that is measured on texts and tasks.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/evaluation/evaluation.h"
#include "halley/models/options/model_options.h"
#include "halley/python/session_options.h"

namespace halley::python {

/// Thread-safe: measurements run one after the other.
class EvalModel {
 public:
  /// Loads the model. `options.precision` is full or low, for all measurements. Throws InputError,
  /// CheckpointError, UnsupportedError or DeviceError.
  explicit EvalModel(const SessionOptions& options);

  /// Results are JSON, as `halley eval --json` prints it. They throw as the functions of
  /// evaluation.h, and what `on_progress` throws.
  std::string perplexity(const std::string& text, const WindowOptions& windows,
                         const std::string& logits_path, const EvalProgress& on_progress);
  std::string compare(const std::string& reference, const std::string& reference_kv_dtype,
                      const std::string& text, const WindowOptions& windows,
                      const EvalProgress& on_progress);
  std::string task(const std::string& path, const EvalProgress& on_progress);
  /// As eval_logits().
  std::vector<float> logits(std::vector<int32_t> ids);

 private:
  EvaluatedModel evaluated() { return {loaded_, kv_dtype_}; }

  const ModelOptions options_;
  std::mutex mutex_;  // guards the model
  std::shared_ptr<const Tokenizer> tokenizer_;
  LoadedModel loaded_;
  KvDType kv_dtype_;
};

}  // namespace halley::python
