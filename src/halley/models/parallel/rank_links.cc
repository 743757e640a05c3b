#include "halley/models/parallel/rank_links.h"

#include <algorithm>
#include <array>
#include <utility>

#include <unistd.h>

#include "halley/base/check.h"
#include "halley/base/str.h"

namespace halley {
namespace {

struct Header {
  RankCall call = RankCall::kEnd;
  uint64_t num_bytes = 0;
};

/// The communicator's first rank tells the others; null: there are none. Leaves the message as it
/// is: a broadcast's buffer is written by the others alone.
void tell_others(Communicator* ranks, RankCall call, std::span<std::byte> message) {
  if (ranks == nullptr) return;
  Header header = {call, message.size()};
  ranks->broadcast_idle(&header, sizeof(header), 0);
  if (!message.empty()) ranks->broadcast(message.data(), message.size(), 0);
}

RankCall hear_first(Communicator& ranks, std::vector<std::byte>& message) {
  Header header;
  ranks.broadcast_idle(&header, sizeof(header), 0);
  message.resize(header.num_bytes);
  if (!message.empty()) ranks.broadcast(message.data(), message.size(), 0);
  return header.call;
}

size_t bytes_of(ConstMatrix hidden) {
  HALLEY_CHECK(hidden.row_stride == hidden.num_cols, hidden.row_stride, hidden.num_cols);
  return static_cast<size_t>(hidden.num_rows * hidden.num_cols) * sizeof(float);
}

/// A communicator of the ranks with an equal color; null for a rank without one, which takes part
/// nevertheless.
std::unique_ptr<Communicator> split(Communicator& world, std::optional<int> color) {
  auto part = world.split(color.value_or(world.num_ranks() + world.rank()));
  return color ? std::move(part) : nullptr;
}

int find_rank_in_machine(Communicator& world) {
  std::array<char, 256> own{};
  if (gethostname(own.data(), own.size() - 1) != 0) own[0] = '\0';
  std::vector<std::array<char, 256>> all(static_cast<size_t>(world.num_ranks()));
  world.all_gather(own.data(), own.size(), all.data());
  return static_cast<int>(std::count(all.begin(), all.begin() + world.rank(), own));
}

}  // namespace

RankLinks::RankLinks(Communicator& world, int num_stages)
    : world_(world),
      num_stages_(num_stages),
      stage_index_(world.rank() / (world.num_ranks() / num_stages)),
      rank_in_stage_(world.rank() % (world.num_ranks() / num_stages)),
      rank_in_machine_(find_rank_in_machine(world)) {
  HALLEY_CHECK(world.num_ranks() % num_stages == 0, world.num_ranks(), num_stages);
  const int size = world.num_ranks() / num_stages;
  stage_ = split(world, size > 1 ? std::optional(stage_index_) : std::nullopt);
  if (num_stages == 1) return;
  // Two heads share a link: first those from an even stage on, then the others.
  for (const int begin : {0, 1}) {
    const int pair = (stage_index_ - begin) / 2;
    const bool is_first = (stage_index_ - begin) % 2 == 0;
    const bool is_linked =
        is_head() && stage_index_ >= begin && stage_index_ + (is_first ? 1 : 0) < num_stages;
    auto link = split(world, is_linked ? std::optional(pair) : std::nullopt);
    if (link != nullptr) (is_first ? next_ : previous_) = std::move(link);
  }
  const bool is_end = is_head() && (stage_index_ == 0 || stage_index_ == num_stages - 1);
  result_ = split(world, is_end ? std::optional(0) : std::nullopt);
}

RankShare RankLinks::share() const {
  return {.rank = rank_in_stage_,
          .num_ranks = world_.num_ranks() / num_stages_,
          .stage = stage_index_,
          .num_stages = num_stages_};
}

void RankLinks::tell(RankCall call, std::vector<std::byte> message) {
  tell_others(stage_.get(), call, message);
  tell_others(next_.get(), call, message);
}

void RankLinks::tell_step(std::vector<std::byte> message, std::function<void()> before_send) {
  tell_others(stage_.get(), RankCall::kForward, message);
  step_ = std::move(message);
  before_send_ = std::move(before_send);
}

RankCall RankLinks::hear(std::vector<std::byte>& message) {
  const bool is_from_stage = !is_head();
  const RankCall call = hear_first(is_from_stage ? *stage_ : *previous_, message);
  if (is_from_stage) return call;
  tell_others(stage_.get(), call, message);
  if (call == RankCall::kForward) {
    step_ = message;
  } else {
    tell_others(next_.get(), call, message);
  }
  return call;
}

void RankLinks::abort_others(const std::exception& error) noexcept {
  try {
    world_.check_async();
  } catch (const DeviceError&) {  // the error is that of a rank that has died, and all know it
    return;
  }
  world_.abort_all(str("rank ", world_.rank(), ": ", error.what()));
}

void RankLinks::receive(Matrix hidden) {
  const size_t num_bytes = bytes_of(hidden);
  if (is_head()) previous_->receive(hidden.data, num_bytes, 0);
  if (stage_ != nullptr) stage_->broadcast(hidden.data, num_bytes, 0);
}

void RankLinks::send(ConstMatrix hidden) {
  if (!is_head()) return;
  if (before_send_) before_send_();
  tell_others(next_.get(), RankCall::kForward, step_);
  next_->send(hidden.data, bytes_of(hidden), 1);
}

void RankLinks::send_logits(std::span<const float> logits) {
  if (!logits.empty()) result_->send(logits.data(), logits.size_bytes(), 0);
}

void RankLinks::receive_logits(std::span<float> logits) {
  if (!logits.empty()) result_->receive(logits.data(), logits.size_bytes(), 1);
}

std::optional<int64_t> RankLinks::least_free_bytes(std::optional<int64_t> own) {
  constexpr int64_t kUnknown = -1;
  const int64_t bytes = own.value_or(kUnknown);
  std::vector<int64_t> all(static_cast<size_t>(world_.num_ranks()));
  world_.all_gather(&bytes, sizeof(bytes), all.data());
  const int64_t least = *std::min_element(all.begin(), all.end());
  return least == kUnknown ? std::nullopt : std::optional(least);
}

}  // namespace halley
