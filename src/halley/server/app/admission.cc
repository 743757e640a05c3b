#include "halley/server/app/app_context.h"
#include "halley/server/app/engine_bridge.h"

namespace halley {

std::unique_ptr<Admission> Admission::take(AppContext& context, int64_t num_sequences) {
  std::unique_ptr<Admission> admission(new Admission(context));
  if (!admission->grow(num_sequences)) return nullptr;
  return admission;
}

Admission::~Admission() { context_.num_preprocessing -= num_sequences_; }

bool Admission::grow(int64_t num_sequences) {
  if (num_sequences == 0) return true;
  // Added before the comparison: of two requests that race for the last slot, one is rejected.
  const int64_t num_preprocessing = context_.num_preprocessing += num_sequences;
  const Engine& engine = *context_.engine;
  if (num_queued(engine) + num_preprocessing > engine.config().max_num_queued) {
    context_.num_preprocessing -= num_sequences;
    return false;
  }
  num_sequences_ += num_sequences;
  return true;
}

void Admission::release_one() {
  if (num_sequences_ == 0) return;
  --num_sequences_;
  --context_.num_preprocessing;
}

}  // namespace halley
