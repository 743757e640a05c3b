#include "halley/server/app/request_watch.h"

namespace halley {

bool RequestWatch::must_stop() const {
  return is_gone_ || (deadline_ && std::chrono::steady_clock::now() >= *deadline_);
}

void RequestWatch::check() const {
  if (is_gone_) throw ClientGone();
  if (must_stop()) throw deadline_error();
}

}  // namespace halley
