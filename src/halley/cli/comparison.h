// The text, the reference and the output format that `eval` and `compare` share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "halley/cli/logits_file.h"
#include "halley/cli/model_options.h"
#include "halley/engine/logit_comparison.h"
#include "halley/json/json.h"

namespace halley::cli {

/// --window and --windows.
struct WindowOptions {
  int64_t window = 1024;
  int64_t num_windows = 0;  // 0: all of the text
};
void add_window_options(CLI::App& app, WindowOptions& options);

/// A text and its tokens, as many as the windows need.
struct EvalText {
  std::string path;
  std::vector<int32_t> ids;
};
EvalText load_eval_text(const std::string& model, const std::string& path,
                        const WindowOptions& windows);

/// The reference of a comparison: another model, or the log probabilities of a logits file.
class Reference {
 public:
  /// `path` is a model's directory or a file of `halley eval --logits`. Threads and self-check are
  /// those of `like`, and the ranks where those are threads; where they are processes the model is
  /// whole in this one. Throws InputError if `kv_dtype` is given for a file.
  Reference(const std::string& path, const ModelOptions& like, const std::string& kv_dtype);

  /// Does nothing for a file.
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

/// {"value", "low", "high"}; the bounds are null if there is no interval.
OrderedJson json_of(const Estimate& estimate);
/// All measures of a comparison.
OrderedJson json_of(const LogitComparison& comparison);
/// "0.0123 [0.0101, 0.0145]".
std::string in_words(const Estimate& estimate, int num_digits);

/// The type of the model's KV cache.
KvDType kv_dtype_of(const ModelOptions& options, const CausalLm& model);

/// One line that explains the intervals.
inline constexpr const char* kIntervalsInWords =
    "95 % intervals: means by windows as clusters with Student's t; top-1 by Wilson over tokens";

}  // namespace halley::cli
