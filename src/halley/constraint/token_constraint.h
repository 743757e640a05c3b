// What a request's output must look like, token by token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "halley/sampling/base/token_mask.h"

namespace halley {

/// Where one request's output stands. Not thread-safe; owned by the request.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  /// Sets `allowed` to the tokens that may come next, after those accepted so far. End-of-sequence
  /// tokens are in it exactly where the output may end here. Empty only where the vocabulary has no
  /// token for any byte that may come next. False where a limit on work or memory was passed, which
  /// ends the request; `allowed` is then unspecified.
  [[nodiscard]] virtual bool fill_allowed(TokenMask& allowed) = 0;

  /// The token that was chosen; it was allowed. False as for fill_allowed().
  [[nodiscard]] virtual bool accept(int32_t token_id) = 0;

  /// Nothing but an end-of-sequence token may follow.
  virtual bool is_complete() const = 0;
};

/// What is common to all requests with the same demand on their output. Immutable, but for caches;
/// any thread, many requests at a time.
class CompiledConstraint {
 public:
  virtual ~CompiledConstraint() = default;

  /// For one request, at the beginning of its output.
  virtual std::unique_ptr<TokenConstraint> start() const = 0;
};

}  // namespace halley
