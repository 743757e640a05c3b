// Constrains a request's output, token by token (guided decoding).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "halley/sampling/base/token_mask.h"

namespace halley {

/// The constraint's state for one request's output. Not thread-safe; owned by the request.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  /// Sets `allowed` to the tokens that may come next, after those accepted so far. End-of-sequence
  /// tokens are in it if and only if the output may end here. It is empty only if the vocabulary
  /// has no token for any byte that may come next. Returns false if a limit on work or memory was
  /// passed, which ends the request; `allowed` is then unspecified.
  [[nodiscard]] virtual bool fill_allowed(TokenMask& allowed) = 0;

  /// Accepts the sampled token, which was allowed. Returns false as fill_allowed() does.
  [[nodiscard]] virtual bool accept(int32_t token_id) = 0;

  /// Whether only an end-of-sequence token may follow.
  virtual bool is_complete() const = 0;
};

/// The state shared by all requests with the same constraint. Immutable except for caches; any
/// thread, many requests at a time.
class CompiledConstraint {
 public:
  virtual ~CompiledConstraint() = default;

  /// Starts the constraint for one request's output.
  virtual std::unique_ptr<TokenConstraint> start() const = 0;
};

}  // namespace halley
