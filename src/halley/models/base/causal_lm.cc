#include "halley/models/base/causal_lm.h"

namespace halley {

size_t kv_bytes_per_token(const ModelShape& shape, KvDType dtype) {
  const KvPageLayout layout = {
      .dtype = dtype, .num_kv_heads = shape.num_kv_heads, .head_dim = shape.head_dim};
  return static_cast<size_t>(shape.num_layers) * layout.token_bytes();
}

}  // namespace halley
