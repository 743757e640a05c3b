// What `eval` and `compare` share: the text, the reference, and how results are shown.
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

/// A text and its tokens, as many as the windows ask for.
struct EvalText {
  std::string path;
  std::vector<int32_t> ids;
};
EvalText load_eval_text(const std::string& model, const std::string& path,
                        const WindowOptions& windows);

/// What models are compared with: another model, or the log probabilities that a logits file holds.
class Reference {
 public:
  /// `path` is a model's folder or a file of `halley eval --logits`. Threads and self-check are
  /// those of `like`. Throws InputError where `kv_dtype` is given for a file.
  Reference(const std::string& path, const ModelOptions& like, const std::string& kv_dtype);

  /// Nothing for a file.
  LoadedModel* model() { return model_ ? &*model_ : nullptr; }
  const std::string& path() const { return options_.model; }
  KvDType kv_dtype() const;  // of a model
  int64_t vocab_size() const;

  /// The logits of this text. Throws InputError where the reference's tokens or windows are others.
  /// The text must outlive the result.
  ReferenceLogits start(const EvalText& text, const WindowOptions& windows);

 private:
  ModelOptions options_;
  std::optional<LoadedModel> model_;
  std::unique_ptr<LogitsReader> reader_;
  std::unique_ptr<WindowForward> forward_;
};

/// {"value", "low", "high"}; the bounds are null where there is no interval.
OrderedJson json_of(const Estimate& estimate);
/// All measures of a comparison.
OrderedJson json_of(const LogitComparison& comparison);
/// "0.0123 [0.0101, 0.0145]".
std::string in_words(const Estimate& estimate, int num_digits);

/// The type that the model's cache gets.
KvDType kv_dtype_of(const ModelOptions& options, const CausalLm& model);

/// How the intervals come about, in a line.
inline constexpr const char* kIntervalsInWords =
    "95 % intervals: means by windows as clusters with Student's t; top-1 by Wilson over tokens";

}  // namespace halley::cli
