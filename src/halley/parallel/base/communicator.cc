#include "halley/parallel/base/communicator.h"

#include <thread>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/str.h"

namespace halley {
namespace {

size_t checked_bytes(const CommBuffer& buffer) {
  HALLEY_CHECK(buffer.count >= 0, buffer.count);
  HALLEY_CHECK(buffer.data != nullptr || buffer.count == 0, buffer.count);
  const auto num_bits =
      checked_mul(static_cast<size_t>(buffer.count), static_cast<size_t>(bits_of(buffer.dtype)));
  HALLEY_CHECK(num_bits.has_value(), buffer.count);
  return *num_bits / 8;
}

}  // namespace

Communicator::Communicator(int rank, int num_ranks, std::chrono::milliseconds timeout)
    : rank_(rank), num_ranks_(num_ranks), timeout_(timeout) {
  HALLEY_CHECK(num_ranks >= 1 && rank >= 0 && rank < num_ranks, rank, num_ranks);
  HALLEY_CHECK(timeout.count() > 0, timeout.count());
}

void Communicator::all_reduce_sum(CommBuffer buffer, CommStream stream) {
  HALLEY_CHECK(
      buffer.dtype == DType::kF32 || buffer.dtype == DType::kF16 || buffer.dtype == DType::kBf16,
      buffer.dtype);
  if (checked_bytes(buffer) == 0 || num_ranks_ == 1) return;
  do_all_reduce(buffer, Reduction::kSum, stream);
}

void Communicator::all_reduce_max(CommBuffer buffer, CommStream stream) {
  HALLEY_CHECK(buffer.dtype == DType::kF32, buffer.dtype);
  if (checked_bytes(buffer) == 0 || num_ranks_ == 1) return;
  do_all_reduce(buffer, Reduction::kMax, stream);
}

void Communicator::all_gather(const void* own, size_t num_bytes, void* all, CommStream stream) {
  HALLEY_CHECK(checked_mul(num_bytes, static_cast<size_t>(num_ranks_)).has_value(), num_bytes);
  if (num_bytes == 0) return;
  HALLEY_CHECK(own != nullptr && all != nullptr, num_bytes);
  if (num_ranks_ == 1 && own == all) return;
  do_all_gather(own, num_bytes, all, stream);
}

void Communicator::broadcast(void* data, size_t num_bytes, int root, CommStream stream) {
  HALLEY_CHECK(root >= 0 && root < num_ranks_, root, num_ranks_);
  if (num_bytes == 0 || num_ranks_ == 1) return;
  HALLEY_CHECK(data != nullptr, num_bytes);
  do_broadcast(data, num_bytes, root, Wait::kTimeout, stream);
}

void Communicator::broadcast_idle(void* data, size_t num_bytes, int root) {
  HALLEY_CHECK(root >= 0 && root < num_ranks_, root, num_ranks_);
  if (num_bytes == 0 || num_ranks_ == 1) return;
  HALLEY_CHECK(data != nullptr, num_bytes);
  do_broadcast(data, num_bytes, root, Wait::kUnlimited, nullptr);
}

void Communicator::send(const void* data, size_t num_bytes, int to, CommStream stream) {
  HALLEY_CHECK(to >= 0 && to < num_ranks_ && to != rank_, to, rank_, num_ranks_);
  if (num_bytes == 0) return;
  HALLEY_CHECK(data != nullptr, num_bytes);
  do_send(data, num_bytes, to, stream);
}

void Communicator::receive(void* data, size_t num_bytes, int from, CommStream stream) {
  HALLEY_CHECK(from >= 0 && from < num_ranks_ && from != rank_, from, rank_, num_ranks_);
  if (num_bytes == 0) return;
  HALLEY_CHECK(data != nullptr, num_bytes);
  do_receive(data, num_bytes, from, stream);
}

std::unique_ptr<Communicator> Communicator::split(int color) {
  HALLEY_CHECK(color >= 0, color);
  return do_split(color);
}

void Communicator::wait_until(const std::function<bool()>& is_done) {
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  while (!is_done()) {
    check_async();
    if (std::chrono::steady_clock::now() > deadline) {
      abort_all(timeout_message("queued work", {}));
      continue;  // to the error of the abort
    }
    std::this_thread::yield();
  }
}

std::string Communicator::timeout_message(std::string_view operation,
                                          std::span<const int> missing) const {
  std::string ranks = missing.size() > 1 ? "ranks" : missing.empty() ? "another rank" : "rank";
  for (size_t i = 0; i < missing.size(); ++i) ranks += str(i > 0 ? ", " : " ", missing[i]);
  return str(operation, " on rank ", rank_, " of ", num_ranks_, ": ", ranks,
             " did not take part within ", static_cast<double>(timeout_.count()) / 1000,
             missing.size() > 1 ? " s: they have died or hang. See what they wrote last"
                                : " s: it has died or hangs. See what it wrote last",
             ", and start all ranks again.");
}

}  // namespace halley
