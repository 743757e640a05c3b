#include "halley/server/app/app_context.h"
#include "halley/server/app/engine_bridge.h"

namespace halley {

std::unique_ptr<Ticket> Ticket::take(AppContext& context, int64_t num_sequences) {
  std::unique_ptr<Ticket> ticket(new Ticket(context));
  if (!ticket->grow(num_sequences)) return nullptr;
  return ticket;
}

Ticket::~Ticket() { context_.num_preparing -= num_sequences_; }

bool Ticket::grow(int64_t num_sequences) {
  if (num_sequences == 0) return true;
  // Added before it is compared: of two that race for the last place, one is rejected.
  const int64_t num_preparing = context_.num_preparing += num_sequences;
  const Engine& engine = *context_.engine;
  if (num_queued(engine) + num_preparing > engine.config().max_num_queued) {
    context_.num_preparing -= num_sequences;
    return false;
  }
  num_sequences_ += num_sequences;
  return true;
}

void Ticket::release_one() {
  if (num_sequences_ == 0) return;
  --num_sequences_;
  --context_.num_preparing;
}

}  // namespace halley
