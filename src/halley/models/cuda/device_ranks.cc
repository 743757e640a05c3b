#include "halley/models/cuda/device_ranks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/cuda/rank_sum/rank_sum.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/parallel/nccl/nccl_communicator.h"
#include "halley/parallel/staged/staged_communicator.h"

namespace halley::cuda {

namespace {

/// Whether two of the ranks have chosen the same GPU.
bool is_any_shared(Communicator& host, int ordinal) {
  using Uuid = std::array<char, sizeof(cudaUUID_t)>;
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, ordinal), "properties of the device");
  Uuid own;
  std::memcpy(own.data(), properties.uuid.bytes, own.size());
  std::vector<Uuid> all(static_cast<size_t>(host.num_ranks()));
  host.all_gather(own.data(), own.size(), all.data());
  std::sort(all.begin(), all.end());
  return std::adjacent_find(all.begin(), all.end()) != all.end();
}

std::unique_ptr<Communicator> make_communicator(Communicator& host, int ordinal, bool is_shared) {
  if (is_shared) return make_staged_communicator(host);
  return make_nccl_communicator(host, ordinal);
}

}  // namespace

DeviceRanks::DeviceRanks(Communicator& host, const CudaDeviceInfo& device)
    : host_(host),
      is_shared_(is_any_shared(host, device.ordinal)),
      device_(make_communicator(host, device.ordinal, is_shared_)) {
  // Ranks that share a GPU would wait there for what a waiting call of CUDA keeps from starting.
  if (is_shared_ || !why_no_peer_exchange(host, device).empty()) return;
  exchange_ = std::make_unique<PeerExchange>(host, device);
}

void DeviceRanks::sum(const CudaContext& context, Matrix rows) {
  if (rows.num_rows == 0) return;
  if (takes_exchange(rows)) return sum_over_ranks(context, *exchange_, rows);
  const int64_t count = (rows.num_rows - 1) * rows.row_stride + rows.num_cols;
  device_->all_reduce_sum({rows.data, count, rows.dtype}, context.stream.get());
}

void DeviceRanks::sum_add_norm_rows(const CudaContext& context, const NormParams& params,
                                    Matrix block, Matrix hidden, const LinearInput& y) {
  if (!takes_exchange(block)) {
    sum(context, block);
    return add_norm_rows(context, params, block, hidden, y);
  }
  if (y.is_codes) {
    return cuda::sum_add_norm_rows(context, *exchange_, params, block, hidden, y.codes);
  }
  cuda::sum_add_norm_rows(context, *exchange_, params, block, hidden, y.numbers);
}

void DeviceRanks::place_columns(const CudaContext& context, ConstMatrix own, std::byte* parts,
                                int64_t row_stride) const {
  const auto bytes = [&](int64_t count) {
    return static_cast<size_t>(count) * static_cast<size_t>(bits_of(own.dtype) / 8);
  };
  std::byte* to = parts + static_cast<size_t>(rank()) * bytes(own.num_rows * row_stride);
  check_cuda(cudaMemcpy2DAsync(to, bytes(row_stride), own.data, bytes(own.row_stride),
                               bytes(own.num_cols), static_cast<size_t>(own.num_rows),
                               cudaMemcpyDeviceToDevice, context.stream.get()),
             "copy of a rank's columns");
}

void DeviceRanks::gather_columns(const CudaContext& context, const ColumnShares& shares,
                                 std::byte* parts, int64_t row_stride, Matrix all) {
  HALLEY_CHECK(shares.num_parts() == num_ranks(), shares.num_parts(), num_ranks());
  const size_t part_bytes = static_cast<size_t>(all.num_rows * row_stride * bits_of(all.dtype) / 8);
  if (part_bytes == 0) return;
  device_->all_gather(parts + static_cast<size_t>(rank()) * part_bytes, part_bytes, parts,
                      context.stream.get());
  join_columns(context, shares, parts, row_stride, all);
}

std::vector<ColumnShares> DeviceRanks::exchange_shares(std::span<const int64_t> begins,
                                                       std::span<const int64_t> num_columns) {
  HALLEY_CHECK(begins.size() == num_columns.size(), begins.size(), num_columns.size());
  const auto num_ranks = static_cast<size_t>(this->num_ranks());
  std::vector<int64_t> of_ranks(num_ranks * begins.size());
  host_.all_gather(begins.data(), begins.size_bytes(), of_ranks.data());
  std::vector<ColumnShares> shares(begins.size());
  for (size_t i = 0; i < begins.size(); ++i) {
    for (size_t rank = 0; rank < num_ranks; ++rank) {
      shares[i].begins.push_back(of_ranks[rank * begins.size() + i]);
    }
    shares[i].begins.push_back(num_columns[i]);
  }
  return shares;
}

void DeviceRanks::run_alone(const CudaStream& stream, const std::function<void()>& run) {
  wait_for(stream);
  meet();
  run();
  stream.synchronize();
  meet();
}

/// Returns when all ranks are here.
void DeviceRanks::meet() {
  std::vector<std::byte> here(static_cast<size_t>(num_ranks()));
  const std::byte own{};
  host_.all_gather(&own, 1, here.data());
}

void DeviceRanks::wait_for(const CudaStream& stream) {
  const CudaEvent event;
  stream.record(event);
  wait_until_reached(event);
}

void DeviceRanks::wait_until_reached(const CudaEvent& event) {
  device_->wait_until([&] {
    if (exchange_ != nullptr) exchange_->check();
    return event.is_reached();
  });
}

}  // namespace halley::cuda
