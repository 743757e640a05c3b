// The connections of one rank of a model: within its stage, to the stages around it, and for the
// calls that rank 0 passes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "halley/base/error.h"
#include "halley/models/base/decoder_config.h"
#include "halley/models/base/stage_exchange.h"
#include "halley/models/parallel/rank_messages.h"
#include "halley/parallel/base/communicator.h"

namespace halley {

/// Ranks are numbered stage by stage. The first of a stage, its head, receives calls and hidden
/// states from the head of the stage before, and gives them to its stage and to the next head. The
/// last head sends logits to rank 0.
class RankLinks final : public StageExchange {
 public:
  /// All ranks of `world`, which outlives this object, make it at the same time. `num_stages`
  /// divides their number.
  RankLinks(Communicator& world, int num_stages);

  RankShare share() const;
  /// Connects the ranks of the stage; null where that has one.
  Communicator* ranks() { return stage_.get(); }
  /// Null where there is one stage.
  StageExchange* stages() { return num_stages_ == 1 ? nullptr : this; }
  Communicator& world() { return world_; }
  /// Among the ranks on this machine, in their order.
  int rank_in_machine() const { return rank_in_machine_; }
  bool is_head() const { return rank_in_stage_ == 0; }

  /// On rank 0: tells all ranks of a call that is no step.
  void tell(RankCall call, std::vector<std::byte> message = {});
  /// On rank 0: tells its stage of a step. The others hear of it by send(), in which `before_send`
  /// runs first.
  void tell_step(std::vector<std::byte> message, std::function<void()> before_send);
  /// On the others: waits for the next call, without a limit of time, and passes it on.
  RankCall hear(std::vector<std::byte>& message);

  /// Runs rank 0's part of a call. Where that fails, the other ranks, which may wait in the middle
  /// of theirs, are aborted; all ranks reject the same input, and go on.
  template <typename Run>
  decltype(auto) run_own(const Run& run) {
    try {
      return run();
    } catch (const InputError&) {
      throw;
    } catch (const std::exception& error) {
      abort_others(error);
      throw;
    }
  }

  void receive(Matrix hidden) override;
  void send(ConstMatrix hidden) override;

  /// From the last head to rank 0.
  void send_logits(std::span<const float> logits);
  void receive_logits(std::span<float> logits);

  /// Every rank gives the bytes that its device has left for a KV cache, if it knows; the least is
  /// the answer for all.
  std::optional<int64_t> least_free_bytes(std::optional<int64_t> own);

 private:
  void abort_others(const std::exception& error) noexcept;

  Communicator& world_;
  const int num_stages_, stage_index_, rank_in_stage_, rank_in_machine_;
  std::unique_ptr<Communicator> stage_;
  // Two heads each, the earlier stage first; `result_` has rank 0 and the last head.
  std::unique_ptr<Communicator> previous_, next_, result_;
  std::vector<std::byte> step_;  // the message that goes with the hidden states
  std::function<void()> before_send_;
};

}  // namespace halley
