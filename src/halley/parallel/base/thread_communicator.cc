#include "halley/parallel/base/thread_communicator.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <thread>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/env.h"
#include "halley/base/str.h"
#include "halley/parallel/base/thread_meeting.h"

namespace halley {
namespace {

constexpr size_t kCacheLineBytes = 64;
// Ranks of one model reach an operation within some ten microseconds of each other.
constexpr std::chrono::microseconds kSpinTime(100);

/// An operation as its rank has called it.
struct Call {
  std::string_view operation;
  std::byte* data = nullptr;
  size_t num_bytes = 0;
};

struct Group;

/// The part of a rank that the others see. `call` is written before `num_entered` and stays until
/// all that read it have left.
struct alignas(kCacheLineBytes) Slot {
  std::atomic<uint64_t> num_entered{0}, num_left{0};  // operations
  std::atomic<bool> uses_others_memory{false};
  Call call;
  std::shared_ptr<Group> split_group;  // of the ranks of a color, in the first one's slot
};

/// Messages from one rank to another; `data` stays until the receiver has counted it.
struct alignas(kCacheLineBytes) Channel {
  std::atomic<uint64_t> num_sent{0}, num_received{0};
  const void* data = nullptr;
  size_t num_bytes = 0;
};

/// The ranks of one communicator.
struct Group {
  Group(size_t num_ranks, std::shared_ptr<ThreadMeeting> all)
      : meeting(std::move(all)), slots(num_ranks), channels(num_ranks * num_ranks) {}

  const std::shared_ptr<ThreadMeeting> meeting;
  std::vector<Slot> slots;
  std::vector<Channel> channels;  // [from, to]
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(int rank, std::shared_ptr<Group> group, std::chrono::milliseconds timeout)
      : Communicator(rank, static_cast<int>(group->slots.size()), timeout),
        group_(std::move(group)),
        meeting_(*group_->meeting),
        slot_(group_->slots[static_cast<size_t>(rank)]) {}

  void check_async() override {
    if (meeting_.abort_reason().is_set()) throw_reason();
  }

  void abort_all(const std::string& reason) noexcept override { meeting_.abort_all(reason); }

 private:
  // From here to the end of the block this rank reads or writes memory of other ranks, which stay
  // in their operation until then, also when all are aborted.
  class OthersMemory {
   public:
    explicit OthersMemory(ThreadCommunicator& rank) : rank_(rank) {
      rank_.slot_.uses_others_memory.store(true);
      if (!rank_.meeting_.abort_reason().is_set()) return;
      rank_.slot_.uses_others_memory.store(false);
      rank_.throw_reason();
    }
    ~OthersMemory() { rank_.slot_.uses_others_memory.store(false); }
    OthersMemory(const OthersMemory&) = delete;
    OthersMemory& operator=(const OthersMemory&) = delete;

   private:
    ThreadCommunicator& rank_;
  };

  void do_all_reduce(CommBuffer buffer, Reduction reduction, CommStream) override {
    const auto count = static_cast<size_t>(buffer.count);
    const size_t element_bytes = static_cast<size_t>(bits_of(buffer.dtype)) / 8;
    const Call call = {reduction == Reduction::kSum ? "all_reduce_sum" : "all_reduce_max",
                       static_cast<std::byte*>(buffer.data), count * element_bytes};
    enter(call);
    wait_for_all(call, &Slot::num_entered);
    {
      const OthersMemory use(*this);
      // Each rank has whole cache lines of every buffer that begins at one.
      const size_t part =
          round_up(ceil_div(count, group_->slots.size()), kCacheLineBytes / element_bytes);
      const size_t begin = std::min(count, part * static_cast<size_t>(rank()));
      std::vector<std::byte*> parts;
      for (const Slot& slot : group_->slots) {
        check_same(call, slot);
        parts.push_back(slot.call.data + begin * element_bytes);
      }
      reduce_ranks(reduction, buffer.dtype, parts, parts, std::min(part, count - begin));
    }
    leave();
    wait_for_all(call, &Slot::num_left);
  }

  void do_all_gather(const void* own, size_t num_bytes, void* all, CommStream) override {
    // The others only read it.
    const Call call = {"all_gather", static_cast<std::byte*>(const_cast<void*>(own)), num_bytes};
    enter(call);
    wait_for_all(call, &Slot::num_entered);
    {
      const OthersMemory use(*this);
      auto* to = static_cast<std::byte*>(all);
      for (const Slot& slot : group_->slots) {
        check_same(call, slot);
        if (slot.call.data != to) std::memcpy(to, slot.call.data, num_bytes);
        to += num_bytes;
      }
    }
    leave();
    wait_for_all(call, &Slot::num_left);
  }

  void do_broadcast(void* data, size_t num_bytes, int root, Wait wait, CommStream) override {
    const Call call = {wait == Wait::kTimeout ? "broadcast" : "broadcast_idle",
                       static_cast<std::byte*>(data), num_bytes};
    enter(call);
    if (rank() == root) {
      leave();
      wait_for_all(call, &Slot::num_left);
      return;
    }
    const Slot& source = group_->slots[static_cast<size_t>(root)];
    wait_for(
        call.operation, [&] { return source.num_entered.load() >= num_calls_; },
        [&] { return std::vector<int>{root}; }, wait);
    {
      const OthersMemory use(*this);
      check_same(call, source);
      std::memcpy(data, source.call.data, num_bytes);
    }
    leave();
  }

  void do_send(const void* data, size_t num_bytes, int to, CommStream) override {
    check_async();
    Channel& channel = channel_of(rank(), to);
    channel.data = data;
    channel.num_bytes = num_bytes;
    const uint64_t num_sent = channel.num_sent.fetch_add(1) + 1;
    meeting_.announce();
    wait_for(
        "send", [&] { return channel.num_received.load() >= num_sent; },
        [&] { return std::vector<int>{to}; });
  }

  void do_receive(void* data, size_t num_bytes, int from, CommStream) override {
    check_async();
    Channel& channel = channel_of(from, rank());
    wait_for(
        "receive", [&] { return channel.num_sent.load() > channel.num_received.load(); },
        [&] { return std::vector<int>{from}; });
    {
      const OthersMemory use(*this);
      HALLEY_CHECK(channel.num_bytes == num_bytes, channel.num_bytes, num_bytes, from, rank());
      std::memcpy(data, channel.data, num_bytes);
    }
    channel.num_received.fetch_add(1);
    meeting_.announce();
  }

  std::unique_ptr<Communicator> do_split(int color) override {
    std::vector<int> colors(group_->slots.size());
    do_all_gather(&color, sizeof(color), colors.data(), nullptr);
    const auto first = std::find(colors.begin(), colors.end(), color);
    const auto own = colors.begin() + rank();
    if (first == own) {
      const auto size = static_cast<size_t>(std::count(colors.begin(), colors.end(), color));
      slot_.split_group = std::make_shared<Group>(size, group_->meeting);
    }
    meet();
    auto group = group_->slots[static_cast<size_t>(first - colors.begin())].split_group;
    meet();
    slot_.split_group.reset();
    return std::make_unique<ThreadCommunicator>(static_cast<int>(std::count(first, own, color)),
                                                std::move(group), timeout());
  }

  void meet() {
    const Call call = {"split"};
    enter(call);
    wait_for_all(call, &Slot::num_entered);
    leave();
  }

  void enter(const Call& call) {
    check_async();
    ++num_calls_;
    slot_.call = call;
    slot_.num_entered.store(num_calls_);
    meeting_.announce();
  }

  void leave() {
    slot_.num_left.store(num_calls_);
    meeting_.announce();
  }

  void wait_for_all(const Call& call, std::atomic<uint64_t> Slot::*num) {
    const auto is_there = [&](const Slot& slot) { return (slot.*num).load() >= num_calls_; };
    wait_for(
        call.operation,
        [&] { return std::all_of(group_->slots.begin(), group_->slots.end(), is_there); },
        [&] {
          std::vector<int> missing;
          for (int i = 0; i < num_ranks(); ++i) {
            if (!is_there(group_->slots[static_cast<size_t>(i)])) missing.push_back(i);
          }
          return missing;
        });
  }

  // Returns once is_done(); else throws, with the ranks that who_is_missing() names.
  template <typename IsDone, typename WhoIsMissing>
  void wait_for(std::string_view operation, const IsDone& is_done,
                const WhoIsMissing& who_is_missing, Wait wait = Wait::kTimeout) {
    std::optional<std::chrono::steady_clock::time_point> deadline;
    if (wait == Wait::kTimeout) deadline = std::chrono::steady_clock::now() + timeout();
    if (meeting_.wait(is_done, deadline)) return;
    if (!meeting_.abort_reason().is_set()) {
      abort_all(timeout_message(operation, who_is_missing()));
    }
    throw_reason();
  }

  // The caller may free its buffers then: nobody uses them any more.
  [[noreturn]] void throw_reason() const {
    for (const Slot& slot : group_->slots) {
      while (slot.uses_others_memory.load()) std::this_thread::yield();
    }
    meeting_.abort_reason().throw_error();
  }

  static void check_same(const Call& own, const Slot& other) {
    HALLEY_CHECK(own.operation == other.call.operation && own.num_bytes == other.call.num_bytes,
                 own.operation, own.num_bytes, other.call.operation, other.call.num_bytes);
  }

  Channel& channel_of(int from, int to) {
    return group_->channels[static_cast<size_t>(from * num_ranks() + to)];
  }

  const std::shared_ptr<Group> group_;
  ThreadMeeting& meeting_;
  Slot& slot_;
  uint64_t num_calls_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(
    int num_ranks, std::chrono::milliseconds timeout) {
  HALLEY_CHECK(num_ranks >= 1, num_ranks);
  const bool has_cores = num_ranks <= num_usable_cores();
  const auto group = std::make_shared<Group>(
      static_cast<size_t>(num_ranks),
      std::make_shared<ThreadMeeting>(has_cores ? kSpinTime : std::chrono::microseconds(0)));
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < num_ranks; ++rank) {
    communicators.push_back(std::make_unique<ThreadCommunicator>(rank, group, timeout));
  }
  return communicators;
}

}  // namespace halley
