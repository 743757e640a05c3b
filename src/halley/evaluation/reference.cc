#include "halley/evaluation/reference.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/model_dir.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"

namespace halley {
namespace {

// A text of this size takes days on any machine; a larger one is a mistake.
constexpr size_t kTextBytesMax = size_t{1} << 30;

}  // namespace

EvalText load_eval_text(const std::string& model, const std::string& path,
                        const WindowOptions& windows) {
  const auto tokenizer = load_tokenizer(check_model_dir(model));
  EvalText text{path, tokenizer->encode(read_text_file(path, kTextBytesMax), false)};
  if (windows.num_windows > 0) {
    const auto count = static_cast<size_t>(windows.num_windows * windows.window);
    text.ids.resize(std::min(text.ids.size(), count));
  }
  return text;
}

KvDType kv_dtype_of(const ModelOptions& options, const CausalLm& model) {
  return kv_dtype_from_name(options.kv_dtype).value_or(model.shape().kv_dtype_default);
}

Reference::Reference(const std::string& path, const ModelOptions& like, const std::string& kv_dtype,
                     const ModelLoader& load) {
  options_.model = path;
  options_.threads = like.threads;
  options_.device = like.device;
  options_.dtype = like.dtype;
  options_.gpu_memory_utilization = like.gpu_memory_utilization;
  options_.has_self_check = like.has_self_check;
  options_.ranks = like.ranks;
  options_.ranks.divides_among_processes = false;
  options_.kv_dtype = kv_dtype;
  if (std::filesystem::is_directory(path)) {
    model_ = load(options_);
    return;
  }
  if (kv_dtype != "auto") {
    throw InputError(str("--reference-kv-dtype: expected --reference to be a model with it, got ",
                         quote(path), ", a file of log probabilities. Leave it out."));
  }
  reader_ = std::make_unique<LogitsReader>(path);
}

LoadedModel Reference::take_model() {
  forward_.reset();  // has a cache of the model's
  return std::move(*model_);
}

KvDType Reference::kv_dtype() const { return kv_dtype_of(options_, *model_->model); }

int64_t Reference::vocab_size() const {
  return model_ ? model_->model->shape().vocab_size : reader_->vocab_size();
}

ReferenceLogits Reference::start(const EvalText& text, const WindowOptions& windows) {
  if (reader_) {
    reader_->check(text.ids, windows.window);
    return [this](const WindowChunk& chunk) { return reader_->read(chunk); };
  }
  if (load_eval_text(options_.model, text.path, windows).ids != text.ids) {
    throw InputError(str("--reference ", quote(options_.model), ": expected the same tokens of ",
                         quote(text.path),
                         " as the model's tokenizer gives, got others. Compare "
                         "models that come from one checkpoint."));
  }
  const int64_t chunk_rows = ComparisonOptions{}.chunk_rows;
  check_windows(model_->model->shape(), text.ids, windows.window, chunk_rows);
  forward_ = std::make_unique<WindowForward>(*model_->model, text.ids, windows.window, chunk_rows,
                                             kv_dtype());
  return [this](const WindowChunk& chunk) { return forward_->run(chunk); };
}

}  // namespace halley
