#include "halley/python/eval_model.h"

#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/model_dir.h"

namespace halley::python {
namespace {

ModelOptions eval_options_of(const SessionOptions& options) {
  ModelOptions model = model_options_of(options);
  static_cast<void>(engine_config_of(options));  // checks kv_cache_dtype
  if (model.precision == "full" || model.precision == "low") return model;
  throw InputError(str("precision: expected full or low, got ", quote(model.precision), "."));
}

void check_windows(const WindowOptions& windows) {
  check_range("window", windows.window, 2, int64_t{1} << 30);
  check_range("num_windows", windows.num_windows, 0, int64_t{1} << 30);
}

LoadedModel load_in_precision(const ModelOptions& options) {
  LoadedModel loaded = load_model_of(options);
  loaded.context->precision = precision_of(options, loaded.plan);
  return loaded;
}

}  // namespace

EvalModel::EvalModel(const SessionOptions& options)
    : options_(eval_options_of(options)),
      tokenizer_(load_tokenizer(check_model_dir(options_.model))),
      loaded_(load_in_precision(options_)),
      kv_dtype_(kv_dtype_of(options_, *loaded_.model)) {}

std::string EvalModel::perplexity(const std::string& text, const WindowOptions& windows,
                                  const std::string& logits_path, const EvalProgress& on_progress) {
  check_windows(windows);
  const std::lock_guard lock(mutex_);
  return eval_perplexity(evaluated(), load_eval_text(options_.model, text, windows), windows.window,
                         logits_path, on_progress)
      .dump();
}

std::string EvalModel::compare(const std::string& reference, const std::string& reference_kv_dtype,
                               const std::string& text, const WindowOptions& windows,
                               const EvalProgress& on_progress) {
  check_windows(windows);
  const std::lock_guard lock(mutex_);
  const EvalText tokens = load_eval_text(options_.model, text, windows);
  Reference loaded_reference(reference, options_, reference_kv_dtype, load_in_precision);
  const LogitComparison comparison =
      compare_with(evaluated(), loaded_reference, tokens, windows, on_progress);
  return json_of(comparison, evaluated(), loaded_reference, tokens, windows.window).dump();
}

std::string EvalModel::task(const std::string& path, const EvalProgress& on_progress) {
  const std::lock_guard lock(mutex_);
  return json_of(eval_task(evaluated(), *tokenizer_, path, on_progress), kv_dtype_).dump();
}

std::vector<float> EvalModel::logits(std::vector<int32_t> ids) {
  const std::lock_guard lock(mutex_);
  return eval_logits(evaluated(), std::move(ids));
}

}  // namespace halley::python
