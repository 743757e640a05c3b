#include "halley/kernels/base/read_bandwidth.h"

#include <array>
#include <cstring>

#include <gtest/gtest.h>

#include "halley/core/host_buffer.h"

namespace halley {
namespace {

TEST(ReadBandwidth, IsWithinWhatAnyMachineCanDo) {
  HostBuffer memory(size_t{8} << 20);
  std::memset(memory.data(), 1, memory.num_bytes());
  for (const int num_threads : {1, 2}) {
    ThreadPool pool(num_threads);
    ExecContext context{pool};
    // An odd start and length: nothing may be read outside, which the sanitizers see.
    for (const size_t offset : {size_t{0}, size_t{3}}) {
      const size_t half = memory.num_bytes() / 2;
      const std::array<std::span<const std::byte>, 2> parts = {
          std::span<const std::byte>(memory.data() + offset, half - 7),
          std::span<const std::byte>(memory.data() + half, half)};
      const double bandwidth = measure_read_bandwidth(context, parts, 3);
      EXPECT_GT(bandwidth, 1e7);
      EXPECT_LT(bandwidth, 1e14);
    }
  }
}

TEST(ReadBandwidth, OfNothingIsZero) {
  ThreadPool pool(1);
  ExecContext context{pool};
  EXPECT_EQ(measure_read_bandwidth(context, {}, 1), 0);
}

}  // namespace
}  // namespace halley
