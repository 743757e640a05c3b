#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/thread_pool.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_device.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/runtime/device_arena.h"
#include "halley/cuda/runtime/staged_copy.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class CudaRuntimeTest : public testing::Test {
 protected:
  CudaDeviceInfo device_ = use_cuda_device(0);
  CudaStream stream_;

  std::vector<uint8_t> read(const std::byte* device, size_t num_bytes) const {
    std::vector<uint8_t> host(num_bytes);
    check_cuda(
        cudaMemcpyAsync(host.data(), device, num_bytes, cudaMemcpyDeviceToHost, stream_.get()),
        "copy to the host");
    stream_.synchronize();
    return host;
  }
};

TEST_F(CudaRuntimeTest, KnowsTheDevice) {
  EXPECT_EQ(device_.compute_major, 9);
  EXPECT_GT(device_.num_sms, 0);
  EXPECT_GT(device_.l2_bytes, size_t{1} << 20);
  EXPECT_GE(device_.shared_bytes_max, size_t{200} << 10);
  EXPECT_LE(free_device_bytes(), device_.total_bytes);
  EXPECT_THAT([] { use_cuda_device(1000); },
              ThrowsMessage<DeviceError>(HasSubstr("GPU: expected a number from 0 to ")));
}

TEST_F(CudaRuntimeTest, RejectsMoreMemoryThanThereIsAndGoesOn) {
  EXPECT_THAT([&] { DeviceBuffer(2 * device_.total_bytes, "weights"); },
              ThrowsMessage<DeviceError>(HasSubstr("GPU memory for weights: expected ")));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_NE(DeviceBuffer(1 << 20, "weights").data(), nullptr);
}

TEST_F(CudaRuntimeTest, ArenaGivesTheSameAddressesAgain) {
  DeviceArena arena(1 << 20, "workspace");
  const std::byte* fixed = arena.take(1000);
  const size_t mark = arena.mark();
  EXPECT_EQ(mark % DeviceArena::kAlignment, 0U);
  const float* first = arena.take<float>(100);
  EXPECT_EQ(reinterpret_cast<const std::byte*>(first), fixed + mark);
  arena.release(mark);
  EXPECT_EQ(arena.take<float>(5000), first);
  EXPECT_THAT([&] { arena.take(1 << 20); },
              ThrowsMessage<DeviceError>(HasSubstr("GPU memory for workspace: expected at most ")));
  EXPECT_NE(arena.take((1 << 20) - arena.mark()), nullptr);
  EXPECT_EQ(arena.mark(), size_t{1} << 20);
}

TEST_F(CudaRuntimeTest, StagedCopiesArriveWhole) {
  ThreadPool pool(4);
  StagedCopy staged(pool, stream_);
  const size_t sizes[] = {1, 4097, StagedCopy::kSlotBytes, 9 * StagedCopy::kSlotBytes + 5};
  for (const size_t num_bytes : sizes) {
    std::vector<uint8_t> host(num_bytes);
    for (size_t i = 0; i < num_bytes; ++i) {
      host[i] = static_cast<uint8_t>(i * 2654435761U >> 13);
    }
    const DeviceBuffer device(num_bytes, "a test");
    staged.copy(device.data(), reinterpret_cast<const std::byte*>(host.data()), num_bytes);
    const std::vector<uint8_t> expected = host;
    std::fill(host.begin(), host.end(), uint8_t{0});  // the copy does not read it any more
    EXPECT_EQ(read(device.data(), num_bytes), expected) << num_bytes;
  }
}

TEST_F(CudaRuntimeTest, GraphRunsWhatWasCaptured) {
  const DeviceBuffer device(64, "a test");
  check_cuda(cudaMemsetAsync(device.data(), 1, 64, stream_.get()), "memset");
  const CudaGraph graph = CudaGraph::capture(stream_, [&] {
    check_cuda(cudaMemsetAsync(device.data(), 2, 32, stream_.get()), "memset");
    check_cuda(cudaMemsetAsync(device.data() + 32, 3, 32, stream_.get()), "memset");
  });
  EXPECT_EQ(graph.num_nodes(), 2U);
  EXPECT_EQ(read(device.data(), 64), std::vector<uint8_t>(64, 1));
  graph.launch(stream_);
  std::vector<uint8_t> expected(64, 2);
  std::fill(expected.begin() + 32, expected.end(), uint8_t{3});
  EXPECT_EQ(read(device.data(), 64), expected);
}

TEST_F(CudaRuntimeTest, GraphWithoutProgrammaticEdgesKeepsOtherOrder) {
  const DeviceBuffer device(64, "a test");
  const CudaGraph graph = CudaGraph::capture(
      stream_,
      [&] {
        for (const int value : {1, 2, 3}) {
          check_cuda(cudaMemsetAsync(device.data(), value, 64, stream_.get()), "memset");
        }
      },
      CudaGraph::ProgrammaticEdges::kRemoved);
  EXPECT_EQ(graph.num_nodes(), 3U);
  EXPECT_EQ(graph.num_removed_edges(), 0U);
  graph.launch(stream_);
  EXPECT_EQ(read(device.data(), 64), std::vector<uint8_t>(64, 3));
}

TEST_F(CudaRuntimeTest, StreamIsUsableAfterAFailedCapture) {
  EXPECT_THROW(CudaGraph::capture(stream_, [] { throw std::runtime_error("stop"); }),
               std::runtime_error);
  const DeviceBuffer device(8, "a test");
  check_cuda(cudaMemsetAsync(device.data(), 7, 8, stream_.get()), "memset");
  EXPECT_EQ(read(device.data(), 8), std::vector<uint8_t>(8, 7));
}

TEST_F(CudaRuntimeTest, EventsOrderStreamsAndMeasure) {
  const CudaStream other;
  const CudaEvent start(CudaEvent::Time::kYes), end(CudaEvent::Time::kYes);
  const DeviceBuffer device(size_t{64} << 20, "a test");
  stream_.record(start);
  check_cuda(cudaMemsetAsync(device.data(), 1, device.num_bytes(), stream_.get()), "memset");
  stream_.record(end);
  other.wait(end);
  check_cuda(cudaMemsetAsync(device.data(), 2, 1, other.get()), "memset");
  other.synchronize();
  EXPECT_EQ(read(device.data(), 2), (std::vector<uint8_t>{2, 1}));
  EXPECT_GT(end.milliseconds_since(start), 0);
}

}  // namespace
}  // namespace halley
