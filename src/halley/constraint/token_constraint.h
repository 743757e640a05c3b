// What a request's output must look like, token by token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace halley {

/// A set of token ids as bits: token t is bit t % 64 of word t / 64.
using TokenMask = std::vector<uint64_t>;

/// Which tokens may come next in one request's output. Not thread-safe; owned by the request.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  /// Sets `allowed` [ceil(V / 64)] to the tokens that may come next, after those accepted so far.
  /// End-of-sequence tokens are in it exactly where the output may end here. Never empty.
  virtual void fill_allowed(TokenMask& allowed) = 0;

  /// The token that was chosen; it was allowed.
  virtual void accept(int32_t token_id) = 0;

  /// Nothing but an end-of-sequence token may follow.
  virtual bool is_complete() const = 0;
};

}  // namespace halley
