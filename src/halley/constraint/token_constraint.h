// Constrains a request's output, token by token (guided decoding).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "halley/sampling/base/token_mask.h"

namespace halley {

/// How far a piece of work has come.
enum class ConstraintWork : uint8_t {
  kDone,
  kPaused,     // its steps are used up: the same call goes on from there
  kOverLimit,  // a limit on work or memory was passed, which ends the request
};

/// The constraint's state for one request's output. Not thread-safe; owned by the request.
///
/// Work is counted in steps of the matcher, about 0.1 us each. It comes in slices, so that one
/// request's cannot keep others waiting: a slice ends a little behind its number of steps. A slice
/// without steps looks up what is known, and does not wait for other requests.
class TokenConstraint {
 public:
  static constexpr size_t kAllSteps = std::numeric_limits<size_t>::max();

  virtual ~TokenConstraint() = default;

  /// Sets `allowed` to the tokens that may come next, after those accepted so far. End-of-sequence
  /// tokens are in it if and only if the output may end here. It is empty only if the vocabulary
  /// has no token for any byte that may come next. Of kPaused it has the part that is done, and
  /// goes to the next call as it is; of kOverLimit it is unspecified.
  [[nodiscard]] virtual ConstraintWork fill_some(TokenMask& allowed, size_t num_steps) = 0;

  /// Accepts the sampled token, which was allowed; of kPaused nothing has changed.
  [[nodiscard]] virtual ConstraintWork accept_some(int32_t token_id, size_t num_steps) = 0;

  /// Whether only an end-of-sequence token may follow.
  virtual bool is_complete() const = 0;

  /// The same in one slice. Return false if a limit was passed.
  [[nodiscard]] bool fill_allowed(TokenMask& allowed) {
    return fill_some(allowed, kAllSteps) == ConstraintWork::kDone;
  }
  [[nodiscard]] bool accept(int32_t token_id) {
    return accept_some(token_id, kAllSteps) == ConstraintWork::kDone;
  }
};

/// The state shared by all requests with the same constraint. Immutable except for caches; any
/// thread, many requests at a time.
class CompiledConstraint {
 public:
  virtual ~CompiledConstraint() = default;

  /// Starts the constraint for one request's output.
  virtual std::unique_ptr<TokenConstraint> start() const = 0;

  /// Memory of what the requests share, now.
  virtual size_t num_bytes() const = 0;

  /// Whether it says where the output ends; false: that is as without a constraint.
  virtual bool ends_output() const { return true; }
  /// Constraints of equal groups work on the same memory: only one of their requests at a time.
  virtual const void* group() const { return this; }
};

}  // namespace halley
