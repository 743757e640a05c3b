#include "halley/parallel/staged/staged_communicator.h"

#include <cstddef>
#include <vector>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley {
namespace {

class StagedCommunicator final : public Communicator {
 public:
  /// `part` is set where this one owns the host's.
  explicit StagedCommunicator(Communicator& host, std::unique_ptr<Communicator> part = nullptr)
      : Communicator(host.rank(), host.num_ranks(), kDefaultTimeout),
        part_(std::move(part)),
        host_(host) {}

  void check_async() override { host_.check_async(); }
  void abort_all(const std::string& reason) noexcept override { host_.abort_all(reason); }

 private:
  void do_all_reduce(CommBuffer buffer, Reduction reduction, CommStream stream) override {
    const size_t num_bytes =
        static_cast<size_t>(buffer.count) * static_cast<size_t>(bits_of(buffer.dtype) / 8);
    fetch(buffer.data, num_bytes, stream);
    const CommBuffer staged = {bytes_.data(), buffer.count, buffer.dtype};
    if (reduction == Reduction::kSum) {
      host_.all_reduce_sum(staged);
    } else {
      host_.all_reduce_max(staged);
    }
    store(buffer.data, num_bytes, stream);
  }

  void do_all_gather(const void* own, size_t num_bytes, void* all, CommStream stream) override {
    fetch(own, num_bytes, stream);
    std::vector<std::byte> of_all(num_bytes * static_cast<size_t>(num_ranks()));
    host_.all_gather(bytes_.data(), num_bytes, of_all.data());
    bytes_ = std::move(of_all);
    store(all, bytes_.size(), stream);
  }

  void do_broadcast(void* data, size_t num_bytes, int root, Wait wait, CommStream stream) override {
    HALLEY_CHECK(wait == Wait::kTimeout, root);
    fetch(data, num_bytes, stream);
    host_.broadcast(bytes_.data(), num_bytes, root);
    store(data, num_bytes, stream);
  }

  void do_send(const void* data, size_t num_bytes, int to, CommStream stream) override {
    fetch(data, num_bytes, stream);
    host_.send(bytes_.data(), num_bytes, to);
  }

  void do_receive(void* data, size_t num_bytes, int from, CommStream stream) override {
    bytes_.resize(num_bytes);
    host_.receive(bytes_.data(), num_bytes, from);
    store(data, num_bytes, stream);
  }

  std::unique_ptr<Communicator> do_split(int color) override {
    auto part = host_.split(color);
    Communicator& of_part = *part;
    return std::make_unique<StagedCommunicator>(of_part, std::move(part));
  }

  void fetch(const void* data, size_t num_bytes, CommStream stream) {
    bytes_.resize(num_bytes);
    check_cuda(cudaMemcpyAsync(bytes_.data(), data, num_bytes, cudaMemcpyDeviceToHost, stream),
               "copy of a rank's data");
    check_cuda(cudaStreamSynchronize(stream), "wait for a rank's data");
  }
  void store(void* data, size_t num_bytes, CommStream stream) {
    check_cuda(cudaMemcpyAsync(data, bytes_.data(), num_bytes, cudaMemcpyHostToDevice, stream),
               "copy of the ranks' data");
    check_cuda(cudaStreamSynchronize(stream), "wait for the ranks' data");
  }

  const std::unique_ptr<Communicator> part_;
  Communicator& host_;
  std::vector<std::byte> bytes_;
};

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(Communicator& host) {
  return std::make_unique<StagedCommunicator>(host);
}

}  // namespace halley
