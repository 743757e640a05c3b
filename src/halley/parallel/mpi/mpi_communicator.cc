#include "halley/parallel/mpi/mpi_communicator.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <optional>
#include <thread>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/parallel/base/abort_reason.h"
#include "halley/parallel/mpi/mpi_launcher.h"
#include "halley/parallel/mpi/mpi_library.h"

namespace halley {
namespace {

using Clock = std::chrono::steady_clock;

// MPI counts in int: larger messages are sent in pieces.
constexpr size_t kPieceBytes = size_t{16} << 20;
// Up to here one all-gather, after which every rank adds up everything, is as quick as the two
// operations in which every rank adds up its part.
constexpr size_t kGatheredBytesMax = size_t{32} << 10;
// Sums go through a buffer of this size, which stays in the second cache.
constexpr size_t kReducedBlockBytes = size_t{256} << 10;

// A waiting rank asks MPI without a pause while the others should come soon, then lets other
// threads run; with nothing to do for a while it sleeps between the questions.
constexpr std::chrono::microseconds kSpinTime(100);
constexpr std::chrono::milliseconds kIdleTime(2);
constexpr std::chrono::microseconds kIdlePause(100);

/// The job that this process has joined and not left. MPI's own state is the process's too.
struct JoinedJob {
  const HalleyMpiApi& api;
  HalleyMpiComm* world = nullptr;
};
std::optional<JoinedJob> joined_job;

/// Prints, since nobody could print it later.
void end_job(const HalleyMpiApi& api, const HalleyMpiComm* comm, const std::string& reason,
             int exit_status) {
  std::fputs(str("halley: rank ", api.rank(comm), " of ", api.num_ranks(comm),
                 " ends the job: ", reason, "\n")
                 .c_str(),
             stderr);
  api.abort_job(exit_status);
}

/// This process's part of the job, shared by its communicator and all that were split from it.
struct Job {
  explicit Job(const HalleyMpiApi& opened) : api(opened) {}

  const HalleyMpiApi& api;
  AbortReason failure;
};

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<Job> job, HalleyMpiComm* comm, std::chrono::milliseconds timeout)
      : Communicator(job->api.rank(comm), job->api.num_ranks(comm), timeout),
        job_(std::move(job)),
        api_(job_->api),
        comm_(comm) {}

  void check_async() override { job_->failure.check(); }

  void abort_all(const std::string& reason) noexcept override { end_job(api_, comm_, reason, 1); }

 protected:
  void barrier() {
    check(api_.start_barrier(comm_), "barrier");
    wait_for("barrier", {});
  }

  bool has_failed() const { return job_->failure.is_set(); }
  const HalleyMpiApi& api() const { return api_; }

 private:
  void do_all_reduce(CommBuffer buffer, Reduction reduction, CommStream) override {
    const size_t element_bytes = static_cast<size_t>(bits_of(buffer.dtype)) / 8;
    const size_t num_bytes = static_cast<size_t>(buffer.count) * element_bytes;
    auto* data = static_cast<std::byte*>(buffer.data);
    const char* operation = reduction == Reduction::kSum ? "all_reduce_sum" : "all_reduce_max";
    check_async();
    if (num_bytes <= kGatheredBytesMax) {
      inputs_.resize(num_bytes * static_cast<size_t>(num_ranks()));
      check(api_.start_all_gather(comm_, data, num_bytes, inputs_.data(), num_bytes), operation);
      wait_for(operation, {});
      reduce_inputs(reduction, buffer.dtype, num_bytes, data);
      return;
    }
    for (size_t begin = 0; begin < num_bytes; begin += kReducedBlockBytes) {
      const size_t block_bytes = std::min(kReducedBlockBytes, num_bytes - begin);
      const size_t part_bytes =
          round_up(ceil_div(block_bytes, static_cast<size_t>(num_ranks())), element_bytes);
      const size_t own_begin = std::min(block_bytes, part_bytes * static_cast<size_t>(rank()));
      const size_t own_bytes = std::min(part_bytes, block_bytes - own_begin);
      inputs_.resize(own_bytes * static_cast<size_t>(num_ranks()));
      check(api_.start_exchange_parts(comm_, data + begin, block_bytes, part_bytes, inputs_.data()),
            operation);
      wait_for(operation, {});
      reduce_inputs(reduction, buffer.dtype, own_bytes, data + begin + own_begin);
      check(api_.start_gather_parts(comm_, data + begin, block_bytes, part_bytes), operation);
      wait_for(operation, {});
    }
  }

  // inputs_: [num_ranks, num_bytes].
  void reduce_inputs(Reduction reduction, DType dtype, size_t num_bytes, std::byte* result) {
    if (num_bytes == 0) return;
    std::vector<const std::byte*> sources;
    for (int i = 0; i < num_ranks(); ++i) {
      sources.push_back(inputs_.data() + static_cast<size_t>(i) * num_bytes);
    }
    reduce_ranks(reduction, dtype, sources, {&result, 1},
                 num_bytes * 8 / static_cast<size_t>(bits_of(dtype)));
  }

  void do_all_gather(const void* own, size_t num_bytes, void* all, CommStream) override {
    check_async();
    const auto* from = static_cast<const std::byte*>(own);
    auto* to = static_cast<std::byte*>(all);
    const bool is_in_place = from == to + static_cast<size_t>(rank()) * num_bytes;
    for (size_t begin = 0; begin < num_bytes; begin += kPieceBytes) {
      check(api_.start_all_gather(comm_, is_in_place ? nullptr : from + begin,
                                  std::min(kPieceBytes, num_bytes - begin), to + begin, num_bytes),
            "all_gather");
      wait_for("all_gather", {});
    }
  }

  void do_broadcast(void* data, size_t num_bytes, int root, Wait wait, CommStream) override {
    check_async();
    const char* operation = wait == Wait::kTimeout ? "broadcast" : "broadcast_idle";
    const std::vector<int> missing(rank() == root ? 0 : 1, root);
    for (size_t begin = 0; begin < num_bytes; begin += kPieceBytes) {
      check(api_.start_broadcast(comm_, static_cast<std::byte*>(data) + begin,
                                 std::min(kPieceBytes, num_bytes - begin), root),
            operation);
      wait_for(operation, missing, rank() == root ? Wait::kTimeout : wait);
    }
  }

  void do_send(const void* data, size_t num_bytes, int to, CommStream) override {
    check_async();
    for (size_t begin = 0; begin < num_bytes; begin += kPieceBytes) {
      check(api_.start_send(comm_, static_cast<const std::byte*>(data) + begin,
                            std::min(kPieceBytes, num_bytes - begin), to),
            "send");
      wait_for("send", {&to, 1});
    }
  }

  void do_receive(void* data, size_t num_bytes, int from, CommStream) override {
    check_async();
    for (size_t begin = 0; begin < num_bytes; begin += kPieceBytes) {
      check(api_.start_receive(comm_, static_cast<std::byte*>(data) + begin,
                               std::min(kPieceBytes, num_bytes - begin), from),
            "receive");
      wait_for("receive", {&from, 1});
    }
  }

  std::unique_ptr<Communicator> do_split(int color) override {
    check_async();
    barrier();  // MPI's split knows no timeout: it begins when all have come
    HalleyMpiComm* part = nullptr;
    check(api_.split(comm_, color, &part), "split");
    return std::make_unique<MpiCommunicator>(job_, part, timeout());
  }

  void wait_for(const char* operation, std::span<const int> missing, Wait wait = Wait::kTimeout) {
    const auto begin = Clock::now();
    while (true) {
      int is_done = 0;
      check(api_.test(comm_, &is_done), operation);
      if (is_done != 0) return;
      const auto waited = Clock::now() - begin;
      if (wait == Wait::kTimeout && waited > timeout()) {
        fail(timeout_message(operation, missing.empty() && num_ranks() == 2
                                            ? std::array<int, 1>{1 - rank()}
                                            : missing));
      }
      if (wait == Wait::kUnlimited && waited > kIdleTime) {
        std::this_thread::sleep_for(kIdlePause);
      } else if (waited > kSpinTime) {
        std::this_thread::yield();
      }
    }
  }

  void check(int status, const char* operation) {
    if (status == 0) return;
    std::array<char, 256> text{};
    api_.describe(status, text.data(), text.size());
    fail(str(operation, " on rank ", rank(), " of ", num_ranks(), ": MPI: ", text.data(),
             ". Start all ranks again."));
  }

  // The operation may still be in progress: MPI is not called any more.
  [[noreturn]] void fail(const std::string& failure) {
    job_->failure.set(failure);
    job_->failure.throw_error();
  }

  const std::shared_ptr<Job> job_;
  const HalleyMpiApi& api_;
  HalleyMpiComm* const comm_;
  std::vector<std::byte> inputs_;
};

/// The communicator of all processes of the job: the first that is made, the last that goes.
class MpiWorld final : public MpiCommunicator {
 public:
  using MpiCommunicator::MpiCommunicator;

  ~MpiWorld() override {
    if (has_failed() || std::uncaught_exceptions() > 0) return;
    try {
      barrier();
      joined_job.reset();
      api().finalize();
    } catch (const DeviceError& error) {
      abort_all(error.what());
    }
  }
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(std::chrono::milliseconds timeout) {
  const HalleyMpiApi& api = open_mpi_library();
  HalleyMpiComm* comm = nullptr;
  if (const int status = api.initialize(&comm); status != 0) {
    std::array<char, 256> text{};
    api.describe(status, text.data(), text.size());
    throw DeviceError(str("MPI: it did not start: ", text.data(), ". Try `mpirun -n 2 hostname`."));
  }
  joined_job.emplace(JoinedJob{api, comm});
  auto world = std::make_unique<MpiWorld>(std::make_shared<Job>(api), comm, timeout);
  const auto launcher = find_mpi_launcher();
  if (launcher && launcher->num_ranks.value_or(world->num_ranks()) != world->num_ranks()) {
    throw DeviceError(str("MPI: expected the ", *launcher->num_ranks, " processes that ",
                          launcher->name, " has started, got ", world->num_ranks(),
                          ": this MPI does not know the launcher. Use the mpirun of the MPI that "
                          "libhalley_mpi.so is linked with, or srun --mpi=pmix."));
  }
  return world;
}

void abort_mpi_job(int exit_status) {
  if (!joined_job) return;
  end_job(joined_job->api, joined_job->world, str("exit status ", exit_status), exit_status);
}

}  // namespace halley
