// A text to evaluate a model on, and the reference that the model is compared with.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halley/engine/logit_comparison.h"
#include "halley/evaluation/logits_file.h"
#include "halley/models/options/model_options.h"

namespace halley {

/// The part of a text that is scored.
struct WindowOptions {
  int64_t window = 1024;
  int64_t num_windows = 0;  // 0: all of the text
};

/// A text and its tokens, as many as the windows need.
struct EvalText {
  std::string path;
  std::vector<int32_t> ids;
};
EvalText load_eval_text(const std::string& model, const std::string& path,
                        const WindowOptions& windows);

/// Loads a model, as whoever evaluates it shows progress.
using ModelLoader = std::function<LoadedModel(const ModelOptions& options)>;

/// The reference of a comparison: another model, or the log probabilities of a logits file.
class Reference {
 public:
  /// `path` is a model's directory or a file of `halley eval --logits`. Threads and self-check are
  /// those of `like`, and the ranks where those are threads; where they are processes the model is
  /// whole in this one. Throws InputError if `kv_dtype` is given for a file, and as `load`.
  Reference(const std::string& path, const ModelOptions& like, const std::string& kv_dtype,
            const ModelLoader& load);

  bool is_model() const { return model_.has_value(); }
  /// Null for a file.
  LoadedModel* model() { return model_ ? &*model_ : nullptr; }
  /// Gives the model away, with which what start() returned ends.
  LoadedModel take_model();
  const std::string& path() const { return options_.model; }
  const ModelOptions& options() const { return options_; }  // of a model
  KvDType kv_dtype() const;                                 // only for a model
  int64_t vocab_size() const;

  /// The logits of this text. Throws InputError if the reference has other tokens or windows. The
  /// text must outlive the result.
  ReferenceLogits start(const EvalText& text, const WindowOptions& windows);

 private:
  ModelOptions options_;
  std::optional<LoadedModel> model_;
  std::unique_ptr<LogitsReader> reader_;
  std::unique_ptr<WindowForward> forward_;
};

/// The type of the model's KV cache.
KvDType kv_dtype_of(const ModelOptions& options, const CausalLm& model);

}  // namespace halley
