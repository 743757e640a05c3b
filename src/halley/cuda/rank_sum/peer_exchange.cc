#include "halley/cuda/rank_sum/peer_exchange.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <random>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley::cuda {
namespace {

constexpr uint32_t kSentinelWord = 0x80008000;
constexpr size_t kRowsBytesLimit = size_t{1} << 30;  // kernels have offsets of 32 bits

/// The same in all threads of a process, and in no other one. Process ids are not: those of two
/// machines may be equal.
uint64_t process_id() {
  static const uint64_t id = [] {
    std::random_device random;
    return (uint64_t{random()} << 32) | random();
  }();
  return id;
}

struct RankDevice {
  uint64_t process = 0;
  int32_t ordinal = 0;
};

std::vector<RankDevice> gather_devices(Communicator& host, const CudaDeviceInfo& device) {
  const RankDevice own = {process_id(), device.ordinal};
  std::vector<RankDevice> devices(static_cast<size_t>(host.num_ranks()));
  host.all_gather(&own, sizeof(own), devices.data());
  return devices;
}

std::string why_not(const std::vector<RankDevice>& devices) {
  if (devices.size() > kExchangeRanksMax) {
    return str(devices.size(), " ranks, more than ", kExchangeRanksMax);
  }
  for (size_t a = 0; a < devices.size(); ++a) {
    if (devices[a].process != devices[0].process) return str("rank ", a, " is another process");
  }
  for (size_t a = 0; a < devices.size(); ++a) {
    for (size_t b = 0; b < devices.size(); ++b) {
      const int from = devices[a].ordinal, to = devices[b].ordinal;
      if (from == to) continue;
      int can_access = 0;
      check_cuda(cudaDeviceCanAccessPeer(&can_access, from, to), "access to a GPU by another one");
      if (can_access == 0) return str("GPU ", from, " does not reach the memory of GPU ", to);
    }
  }
  return {};
}

void enable_access(const std::vector<RankDevice>& devices, int own) {
  for (const RankDevice& other : devices) {
    if (other.ordinal == own) continue;
    const cudaError_t status = cudaDeviceEnablePeerAccess(other.ordinal, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();  // later launches must not see it
      continue;
    }
    check_cuda(status, "access to the memory of another GPU");
  }
}

using SharedBuffer = std::shared_ptr<DeviceBuffer>;

/// Every rank's buffer, shared by all ranks. Returns when all have come.
std::vector<SharedBuffer> share_with_ranks(Communicator& host, const SharedBuffer& own) {
  const auto num_ranks = static_cast<size_t>(host.num_ranks());
  // Rank r takes over the copy for it. When an abort keeps it from that, the copy stays.
  std::vector<SharedBuffer*> copies, of_all(num_ranks * num_ranks);
  for (size_t r = 0; r < num_ranks; ++r) copies.push_back(new SharedBuffer(own));
  host.all_gather(copies.data(), num_ranks * sizeof(SharedBuffer*), of_all.data());
  std::vector<SharedBuffer> buffers;
  for (size_t r = 0; r < num_ranks; ++r) {
    const std::unique_ptr<SharedBuffer> taken(
        of_all[r * num_ranks + static_cast<size_t>(host.rank())]);
    buffers.push_back(*taken);
  }
  return buffers;
}

SharedBuffer make_memory(size_t num_bytes) {
  auto memory = std::make_shared<DeviceBuffer>(num_bytes, "the exchange between ranks");
  const std::vector<uint32_t> empty(num_bytes / sizeof(uint32_t), kSentinelWord);
  check_cuda(cudaMemcpy(memory->data(), empty.data(), num_bytes, cudaMemcpyHostToDevice),
             "empty memory of the exchange");
  check_cuda(cudaDeviceSynchronize(), "empty memory of the exchange");
  return memory;
}

}  // namespace

std::string why_no_peer_exchange(Communicator& host, const CudaDeviceInfo& device) {
  return why_not(gather_devices(host, device));
}

PeerExchange::PeerExchange(Communicator& host, const CudaDeviceInfo& device, size_t rows_bytes_max,
                           std::chrono::milliseconds timeout)
    : host_(host),
      timeout_(timeout),
      rows_bytes_max_(rows_bytes_max),
      state_(sizeof(ExchangeState), "the state of the exchange between ranks"),
      signals_(sizeof(ExchangeSignals)) {
  const std::vector<RankDevice> devices = gather_devices(host, device);
  const std::string reason = why_not(devices);
  HALLEY_CHECK(reason.empty(), reason);
  HALLEY_CHECK(rows_bytes_max > 0 && rows_bytes_max <= kRowsBytesLimit && timeout.count() > 0,
               rows_bytes_max, timeout.count());
  new (signals_.data()) ExchangeSignals{};
  check_cuda(cudaMemset(state_.data(), 0, sizeof(ExchangeState)), "state of the exchange");
  const auto num_ranks = static_cast<size_t>(host.num_ranks());
  const size_t slot_bytes = round_up<size_t>(rows_bytes_max, DeviceArena::kAlignment);
  enable_access(devices, device.ordinal);
  // Behind the exchange of pointers all memory is empty.
  memory_ = share_with_ranks(host, make_memory(2 * num_ranks * slot_bytes));
  args_.state = reinterpret_cast<ExchangeState*>(state_.data());
  args_.signals = reinterpret_cast<ExchangeSignals*>(signals_.data());
  args_.timeout_ns = static_cast<uint64_t>(std::chrono::nanoseconds(timeout).count());
  args_.slot_bytes = slot_bytes;
  args_.rank = host.rank();
  args_.num_ranks = host.num_ranks();
  for (size_t r = 0; r < num_ranks; ++r) args_.memory[r] = memory_[r]->data();
  const auto num_ranks_here =
      std::count_if(devices.begin(), devices.end(),
                    [&](const RankDevice& other) { return other.ordinal == device.ordinal; });
  args_.launches_dependents = num_ranks_here == 1;
  // Ranks that share a GPU leave half of it to their other kernels, which must end too.
  num_ctas_max_ = num_ranks_here == 1
                      ? device.num_sms
                      : std::max(1, device.num_sms / (2 * static_cast<int>(num_ranks_here)));
}

PeerExchange::~PeerExchange() { cancel(); }

bool PeerExchange::fits(ConstMatrix rows) const {
  constexpr int64_t kVector = 8;
  const bool is_16_bit = rows.dtype == DType::kF16 || rows.dtype == DType::kBf16;
  if (!is_16_bit || rows.num_cols % kVector != 0) return false;
  if (rows.num_rows > 1 && rows.row_stride % kVector != 0) return false;
  if (reinterpret_cast<uintptr_t>(rows.data) % 16 != 0) return false;
  const auto num_elements =
      checked_mul(static_cast<size_t>(rows.num_rows), static_cast<size_t>(rows.num_cols));
  return num_elements.has_value() && *num_elements <= rows_bytes_max_ / sizeof(uint16_t);
}

void PeerExchange::check() {
  try {
    host_.check_async();
  } catch (const DeviceError&) {
    cancel();
    throw;
  }
  const uint32_t missing = std::atomic_ref(signals().missing_rank).load();
  if (missing == 0) return;
  host_.abort_all(str("sum over ranks on rank ", args_.rank, " of ", args_.num_ranks, ": rank ",
                      missing - 1, " did not take part within ",
                      static_cast<double>(timeout_.count()) / 1000,
                      " s: it has died or hangs. See what it wrote last, and start all ranks "
                      "again."));
  host_.check_async();
}

ExchangeSignals& PeerExchange::signals() const {
  return *reinterpret_cast<ExchangeSignals*>(signals_.data());
}

void PeerExchange::cancel() noexcept { std::atomic_ref(signals().is_cancelled).store(1); }

}  // namespace halley::cuda
