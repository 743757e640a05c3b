#include "halley/checkpoint/weights/model_weights.h"

#include "halley/checkpoint/gguf/gguf_file.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/checkpoint/weights/gguf_weights.h"
#include "halley/checkpoint/weights/prefixed_weights.h"

namespace halley {

std::unique_ptr<TensorSource> open_model_weights(const std::filesystem::path& model) {
  if (is_gguf_file(model)) return open_gguf_weights(model);
  return with_model_prefix(open_checkpoint_weights(model));
}

}  // namespace halley
