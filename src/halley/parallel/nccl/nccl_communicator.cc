#include "halley/parallel/nccl/nccl_communicator.h"

#include <exception>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/runtime/cuda_device.h"
#include "halley/parallel/base/thread_communicator.h"
#include "halley/parallel/nccl/nccl_library.h"

namespace halley {
namespace {

const nccl::Api& nccl_api() {
  static const nccl::Api api = nccl::open_library();
  return api;
}

nccl::DataType nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return nccl::kFloat32;
    case DType::kF16:
      return nccl::kFloat16;
    default:
      HALLEY_CHECK(dtype == DType::kBf16, dtype);
      return nccl::kBfloat16;
  }
}

/// The text of what NCCL returned; empty for success.
std::string nccl_error(const nccl::Api& api, nccl::Result result) {
  if (result == nccl::kSuccess) return {};
  return str("NCCL: ", api.get_error_string(result), ": ", api.get_last_error(nullptr),
             ". NCCL_DEBUG=WARN says more");
}

/// NCCL's communicator of one rank, and the error that replaces it.
struct Opened {
  nccl::Comm comm = nullptr;
  std::string error;  // empty: there is none
};

/// Starts `open`, which blocks in NCCL until all ranks have come, on a thread with this GPU.
std::future<Opened> open_on_thread(int device, std::function<nccl::Result(nccl::Comm* comm)> open) {
  std::packaged_task<Opened()> task([device, open = std::move(open)] {
    Opened opened;
    try {
      use_cuda_device(device);
      opened.error = nccl_error(nccl_api(), open(&opened.comm));
    } catch (const Error& error) {
      opened.error = error.what();
    }
    return opened;
  });
  auto result = task.get_future();
  // It cannot be ended while other ranks do not come: then it stays, and so does the program's
  // error, with which it ends.
  std::thread(std::move(task)).detach();
  return result;
}

/// A rank of NCCL together with its end of a communicator of the host, whose ranks are the same:
/// by that one they agree on what NCCL does not know of, the end of all by an abort among it.
class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Communicator> host, int device,
                   std::chrono::milliseconds timeout)
      : Communicator(host->rank(), host->num_ranks(), timeout),
        api_(nccl_api()),
        host_(std::move(host)),
        device_(device) {}

  ~NcclCommunicator() override {
    if (comm_ == nullptr) return;
    if (is_aborted() || std::uncaught_exceptions() > 0) {
      api_.comm_abort(comm_);
    } else {
      api_.comm_destroy(comm_);
    }
  }

  std::future<Opened> start_init(const nccl::UniqueId& id) const {
    return open_on_thread(
        device_, [&api = api_, id, rank = rank(), num_ranks = num_ranks()](nccl::Comm* comm) {
          return api.comm_init_rank(comm, num_ranks, id, rank);
        });
  }

  void finish_open(const char* operation, std::future<Opened> opened) {
    if (opened.wait_for(timeout()) != std::future_status::ready) {
      fail(timeout_message(operation, {}));
    }
    Opened result = opened.get();
    if (!result.error.empty()) fail(operation, result.error);
    comm_ = result.comm;
  }

  void check_async() override {
    check_host();
    nccl::Result async = nccl::kSuccess;
    check(api_.comm_get_async_error(comm_, &async), "check");
    if (async != nccl::kInProgress) check(async, "queued work");
  }

  void abort_all(const std::string& reason) noexcept override { host_->abort_all(reason); }

  const nccl::Api& api() const { return api_; }
  nccl::Comm comm() const { return comm_; }

  void check(nccl::Result result, const char* operation) {
    if (result != nccl::kSuccess) fail(operation, nccl_error(api_, result));
  }

 private:
  void do_all_reduce(CommBuffer buffer, Reduction reduction, CommStream stream) override {
    check_async();
    const bool is_sum = reduction == Reduction::kSum;
    check(api_.all_reduce(buffer.data, buffer.data, static_cast<size_t>(buffer.count),
                          nccl_type(buffer.dtype), is_sum ? nccl::kSum : nccl::kMax, comm_, stream),
          is_sum ? "all_reduce_sum" : "all_reduce_max");
  }

  void do_all_gather(const void* own, size_t num_bytes, void* all, CommStream stream) override {
    check_async();
    check(api_.all_gather(own, all, num_bytes, nccl::kUint8, comm_, stream), "all_gather");
  }

  void do_broadcast(void* data, size_t num_bytes, int root, Wait wait, CommStream stream) override {
    HALLEY_CHECK(wait == Wait::kTimeout, root);  // a GPU does not wait idly
    check_async();
    check(api_.broadcast(data, data, num_bytes, nccl::kUint8, root, comm_, stream), "broadcast");
  }

  void do_send(const void* data, size_t num_bytes, int to, CommStream stream) override {
    check_async();
    check(api_.send(data, num_bytes, nccl::kUint8, to, comm_, stream), "send");
  }

  void do_receive(void* data, size_t num_bytes, int from, CommStream stream) override {
    check_async();
    check(api_.receive(data, num_bytes, nccl::kUint8, from, comm_, stream), "receive");
  }

  std::unique_ptr<Communicator> do_split(int color) override {
    check_async();
    auto part = std::make_unique<NcclCommunicator>(host_->split(color), device_, timeout());
    part->finish_open("split", open_on_thread(device_, [&api = api_, comm = comm_, color,
                                                        rank = rank()](nccl::Comm* opened) {
                        return api.comm_split(comm, color, rank, opened, nullptr);
                      }));
    return part;
  }

  bool is_aborted() const {
    try {
      host_->check_async();
      return false;
    } catch (const DeviceError&) {
      return true;
    }
  }

  // NCCL's kernels that wait for others end by the abort of this rank's communicator alone, so that
  // whoever waits for the stream then, a destructor for instance, gets on.
  void check_host() {
    try {
      host_->check_async();
    } catch (const DeviceError&) {
      if (comm_ != nullptr) api_.comm_abort(std::exchange(comm_, nullptr));
      throw;
    }
  }

  [[noreturn]] void fail(const char* operation, const std::string& error) {
    fail(str(operation, " on rank ", rank(), " of ", num_ranks(), ", GPU ", device_, ": ", error,
             ". Start all ranks again."));
  }

  [[noreturn]] void fail(const std::string& message) {
    abort_all(message);
    check_host();
    throw DeviceError(message);
  }

  const nccl::Api& api_;
  const std::shared_ptr<Communicator> host_;
  const int device_;
  nccl::Comm comm_ = nullptr;
};

class RegisteredMemory final : public NcclMemory {
 public:
  explicit RegisteredMemory(NcclCommunicator& comm) : comm_(comm) {}
  ~RegisteredMemory() override {
    // An abort has ended the communicator together with its windows.
    if (window_ != nullptr && comm_.comm() != nullptr) {
      comm_.api().comm_window_deregister(comm_.comm(), window_);
    }
    if (data_ != nullptr) comm_.api().mem_free(data_);
  }

  void take(size_t num_bytes) {
    const nccl::Api& api = comm_.api();
    comm_.check(api.mem_alloc(&data_, num_bytes), "memory to register");
    comm_.check(
        api.comm_window_register(comm_.comm(), data_, num_bytes, &window_, nccl::kSymmetricWindow),
        "registration of memory");
  }

  std::byte* data() const override { return static_cast<std::byte*>(data_); }

 private:
  NcclCommunicator& comm_;
  void* data_ = nullptr;
  nccl::Window window_ = nullptr;
};

nccl::UniqueId make_unique_id() {
  nccl::UniqueId id{};
  const std::string error = nccl_error(nccl_api(), nccl_api().get_unique_id(&id));
  if (!error.empty()) throw DeviceError(str(error, ". Check the machine's network."));
  return id;
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_nccl_communicators(
    std::span<const int> devices, std::chrono::milliseconds timeout) {
  const nccl::UniqueId id = make_unique_id();
  auto hosts = make_thread_communicators(static_cast<int>(devices.size()), timeout);
  std::vector<std::unique_ptr<NcclCommunicator>> ranks;
  std::vector<std::future<Opened>> opened;
  for (size_t i = 0; i < devices.size(); ++i) {
    ranks.push_back(std::make_unique<NcclCommunicator>(std::move(hosts[i]), devices[i], timeout));
    opened.push_back(ranks.back()->start_init(id));
  }
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (size_t i = 0; i < ranks.size(); ++i) {
    ranks[i]->finish_open("start of NCCL", std::move(opened[i]));
    communicators.push_back(std::move(ranks[i]));
  }
  return communicators;
}

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, int device,
                                                     std::chrono::milliseconds timeout) {
  nccl_api();  // each rank says itself what it has not
  nccl::UniqueId id{};
  if (host.rank() == 0) id = make_unique_id();
  host.broadcast(&id, sizeof(id), 0);
  const std::shared_ptr<Communicator> borrowed(std::shared_ptr<void>(), &host);
  auto rank = std::make_unique<NcclCommunicator>(borrowed, device, timeout);
  rank->finish_open("start of NCCL", rank->start_init(id));
  return rank;
}

std::string nccl_version() {
  int version = 0;
  const std::string error = nccl_error(nccl_api(), nccl_api().get_version(&version));
  if (!error.empty()) throw DeviceError(error);
  return str(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::unique_ptr<NcclMemory> make_nccl_memory(Communicator& comm, size_t num_bytes) {
  auto* const of_nccl = dynamic_cast<NcclCommunicator*>(&comm);
  HALLEY_CHECK(of_nccl != nullptr, num_bytes);
  const nccl::Api& api = nccl_api();
  if (api.mem_alloc == nullptr || api.mem_free == nullptr || api.comm_window_register == nullptr ||
      api.comm_window_deregister == nullptr) {
    return nullptr;
  }
  auto memory = std::make_unique<RegisteredMemory>(*of_nccl);
  memory->take(num_bytes);
  return memory;
}

}  // namespace halley
