#include "halley/parallel/base/testing/communicator_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gmock/gmock.h>

#include "halley/core/element.h"
#include "halley/core/float16.h"

namespace halley {
namespace {

using testing::Each;
using testing::Eq;

// None, one, odd ones, those about a cache line, and more than the buffers of any implementation.
constexpr int64_t kSizes[] = {0, 1, 2, 7, 15, 16, 17, 33, 4095, 100'003};

size_t bytes_of(DType dtype, int64_t count) {
  return static_cast<size_t>(count * bits_of(dtype) / 8);
}

std::vector<std::byte> random_elements(DType dtype, int64_t count, int seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<std::byte> bytes(bytes_of(dtype, count));
  const size_t element_bytes = bytes_of(dtype, 1);
  for (std::byte* to = bytes.data(); to != bytes.data() + bytes.size(); to += element_bytes) {
    const float value = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f;
    const uint16_t half = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    std::memcpy(to, dtype == DType::kF32 ? static_cast<const void*>(&value) : &half, element_bytes);
  }
  return bytes;
}

float element(DType dtype, const std::vector<std::byte>& bytes, int64_t i) {
  return element_to_f32(dtype, bytes.data() + bytes_of(dtype, i));
}

/// The inputs of all ranks; the same for all that ask.
std::vector<std::vector<std::byte>> elements_of_ranks(int num_ranks, DType dtype, int64_t count) {
  std::vector<std::vector<std::byte>> all;
  for (int i = 0; i < num_ranks; ++i) all.push_back(random_elements(dtype, count, i));
  return all;
}

void expect_same_on_all_ranks(Communicator& rank, const std::vector<std::byte>& bytes) {
  std::vector<std::byte> all(bytes.size() * static_cast<size_t>(rank.num_ranks()));
  rank.all_gather(bytes.data(), bytes.size(), all.data());
  for (size_t i = 0; i < all.size(); i += bytes.size()) {
    EXPECT_EQ(std::memcmp(all.data() + i, bytes.data(), bytes.size()), 0)
        << "rank " << rank.rank() << " and rank " << i / bytes.size();
  }
}

/// The bound is half a step of the type and the error of f32 additions.
void expect_sums(Communicator& rank, DType dtype, double relative_step) {
  const int num_ranks = rank.num_ranks();
  for (const int64_t count : kSizes) {
    const auto inputs = elements_of_ranks(num_ranks, dtype, count);
    std::vector<std::byte> sums = inputs[static_cast<size_t>(rank.rank())];
    rank.all_reduce_sum({sums.data(), count, dtype});
    int64_t num_wrong = 0;
    for (int64_t i = 0; i < count; ++i) {
      double sum = 0, magnitude = 0;
      for (const auto& input : inputs) {
        sum += element(dtype, input, i);
        magnitude += std::abs(element(dtype, input, i));
      }
      const double bound = std::abs(sum) * relative_step / 2 + magnitude * num_ranks * 0x1p-24;
      num_wrong += std::abs(element(dtype, sums, i) - sum) > bound ? 1 : 0;
    }
    EXPECT_EQ(num_wrong, 0) << dtype << " [" << count << "] on rank " << rank.rank();
    expect_same_on_all_ranks(rank, sums);
  }
}

void sums_f32(Communicator& rank) { expect_sums(rank, DType::kF32, 0x1p-23); }
void sums_f16(Communicator& rank) { expect_sums(rank, DType::kF16, 0x1p-10); }
void sums_bf16(Communicator& rank) { expect_sums(rank, DType::kBf16, 0x1p-7); }

void sums_are_in_the_order_of_ranks(Communicator& rank) {
  constexpr int64_t kCount = 10'007;
  const auto inputs = elements_of_ranks(rank.num_ranks(), DType::kF32, kCount);
  std::vector<std::byte> sums = inputs[static_cast<size_t>(rank.rank())];
  rank.all_reduce_sum({sums.data(), kCount, DType::kF32});
  int64_t num_wrong = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    float sum = element(DType::kF32, inputs[0], i);
    for (size_t from = 1; from < inputs.size(); ++from) {
      sum += element(DType::kF32, inputs[from], i);
    }
    num_wrong += sum != element(DType::kF32, sums, i) ? 1 : 0;
  }
  EXPECT_EQ(num_wrong, 0);
}

// Each sum of two ranks alone would round to 2048, the largest f16 that has no odd neighbour.
void f16_is_rounded_once(Communicator& rank) {
  const float own = rank.rank() == 0 ? 2048 : 1;
  uint16_t value = f32_to_f16(own);
  rank.all_reduce_sum({&value, 1, DType::kF16});
  EXPECT_EQ(value, f32_to_f16(static_cast<float>(2048 + rank.num_ranks() - 1)));
}

void maxima(Communicator& rank) {
  for (const int64_t count : kSizes) {
    const auto inputs = elements_of_ranks(rank.num_ranks(), DType::kF32, count);
    std::vector<std::byte> maxima = inputs[static_cast<size_t>(rank.rank())];
    rank.all_reduce_max({maxima.data(), count, DType::kF32});
    int64_t num_wrong = 0;
    for (int64_t i = 0; i < count; ++i) {
      float expected = element(DType::kF32, inputs[0], i);
      for (const auto& input : inputs) {
        expected = std::max(expected, element(DType::kF32, input, i));
      }
      num_wrong += expected != element(DType::kF32, maxima, i) ? 1 : 0;
    }
    EXPECT_EQ(num_wrong, 0) << count;
  }
}

void gathers(Communicator& rank) {
  for (const int64_t count : kSizes) {
    const auto inputs = elements_of_ranks(rank.num_ranks(), DType::kF16, count);
    std::vector<std::byte> expected;
    for (const auto& input : inputs) expected.insert(expected.end(), input.begin(), input.end());
    const std::vector<std::byte>& own = inputs[static_cast<size_t>(rank.rank())];
    std::vector<std::byte> all(expected.size());
    rank.all_gather(own.data(), own.size(), all.data());
    EXPECT_TRUE(all == expected) << count;
    // The same in place.
    std::vector<std::byte> rows(expected.size());
    std::byte* row = rows.data() + own.size() * static_cast<size_t>(rank.rank());
    std::copy(own.begin(), own.end(), row);
    rank.all_gather(row, own.size(), rows.data());
    EXPECT_TRUE(rows == expected) << count << " in place";
  }
}

void broadcasts(Communicator& rank) {
  for (int root = 0; root < rank.num_ranks(); ++root) {
    for (const int64_t count : kSizes) {
      const auto inputs = elements_of_ranks(rank.num_ranks(), DType::kBf16, count);
      std::vector<std::byte> data = inputs[static_cast<size_t>(rank.rank())];
      rank.broadcast(data.data(), data.size(), root);
      EXPECT_TRUE(data == inputs[static_cast<size_t>(root)]) << count << " from " << root;
    }
  }
}

void broadcasts_to_idle_ranks(Communicator& rank) {
  for (int i = 0; i < 100; ++i) {
    int data = rank.rank() == 0 ? i : -1;
    rank.broadcast_idle(&data, sizeof(data), 0);
    EXPECT_EQ(data, i);
  }
}

// Along a ring; rank 0 receives last, so that nobody waits for itself.
void messages_keep_their_order(Communicator& rank) {
  if (rank.num_ranks() == 1) return;
  const int to = (rank.rank() + 1) % rank.num_ranks();
  const int from = (rank.rank() + rank.num_ranks() - 1) % rank.num_ranks();
  for (const int64_t count : kSizes) {
    std::vector<std::byte> own(static_cast<size_t>(count), static_cast<std::byte>(rank.rank()));
    std::vector<std::byte> received(own.size(), std::byte{0xFF});
    const auto send = [&] {
      rank.send(own.data(), own.size(), to);
      rank.send(&count, sizeof(count), to);
    };
    int64_t second = 0;
    if (rank.rank() == 0) send();
    rank.receive(received.data(), received.size(), from);
    rank.receive(&second, sizeof(second), from);
    if (rank.rank() != 0) send();
    EXPECT_THAT(received, Each(Eq(static_cast<std::byte>(from)))) << count;
    EXPECT_EQ(second, count);
  }
}

void splits_by_color(Communicator& rank) {
  const std::unique_ptr<Communicator> half = rank.split(rank.rank() % 2);
  EXPECT_EQ(half->rank(), rank.rank() / 2);
  EXPECT_EQ(half->num_ranks(), (rank.num_ranks() + (rank.rank() % 2 == 0 ? 1 : 0)) / 2);
  std::vector<int> members(static_cast<size_t>(half->num_ranks()));
  const int own = rank.rank();
  half->all_gather(&own, sizeof(own), members.data());
  for (size_t i = 0; i < members.size(); ++i) {
    EXPECT_EQ(members[i], static_cast<int>(i) * 2 + rank.rank() % 2);
  }
  // Both, and a split of a split, go on.
  const std::unique_ptr<Communicator> alone = half->split(half->rank());
  EXPECT_EQ(alone->num_ranks(), 1);
  float one = 1;
  alone->all_reduce_sum({&one, 1, DType::kF32});
  EXPECT_EQ(one, 1);
  half->all_reduce_sum({&one, 1, DType::kF32});
  EXPECT_EQ(one, static_cast<float>(half->num_ranks()));
  one = 1;
  rank.all_reduce_sum({&one, 1, DType::kF32});
  EXPECT_EQ(one, static_cast<float>(rank.num_ranks()));
}

// The operations of a model's steps, often enough that a rank that runs ahead would show.
void many_operations_in_a_row(Communicator& rank) {
  const auto num_ranks = static_cast<float>(rank.num_ranks());
  std::vector<float> data(129);
  for (int i = 0; i < 300; ++i) {
    std::fill(data.begin(), data.end(), static_cast<float>(i + rank.rank()));
    rank.all_reduce_sum({data.data(), static_cast<int64_t>(data.size()), DType::kF32});
    const float sum = num_ranks * static_cast<float>(i) + num_ranks * (num_ranks - 1) / 2;
    ASSERT_THAT(data, Each(Eq(sum))) << i;
    int step = rank.rank() == i % rank.num_ranks() ? i : -1;
    rank.broadcast(&step, sizeof(step), i % rank.num_ranks());
    ASSERT_EQ(step, i);
  }
}

void waits_for_queued_work(Communicator& rank) {
  int num_asked = 0;
  rank.wait_until([&] { return ++num_asked == 3; });
  EXPECT_EQ(num_asked, 3);
}

constexpr CommunicatorCase kCases[] = {
    {"SumsF32", sums_f32},
    {"SumsF16", sums_f16},
    {"SumsBf16", sums_bf16},
    {"SumsAreInTheOrderOfRanks", sums_are_in_the_order_of_ranks},
    {"F16IsRoundedOnce", f16_is_rounded_once},
    {"Maxima", maxima},
    {"Gathers", gathers},
    {"Broadcasts", broadcasts},
    {"BroadcastsToIdleRanks", broadcasts_to_idle_ranks},
    {"MessagesKeepTheirOrder", messages_keep_their_order},
    {"SplitsByColor", splits_by_color},
    {"ManyOperationsInARow", many_operations_in_a_row},
    {"WaitsForQueuedWork", waits_for_queued_work},
};

}  // namespace

std::span<const CommunicatorCase> communicator_cases() { return kCases; }

}  // namespace halley
