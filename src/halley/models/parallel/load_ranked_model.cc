#include "halley/models/parallel/load_ranked_model.h"

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/models/parallel/follow_rank.h"
#include "halley/models/parallel/ranked_model.h"
#include "halley/parallel/base/thread_communicator.h"

namespace halley {
namespace {

/// Returns when every rank has come, however long that takes.
void await_all(Communicator& ranks) {
  for (int rank = 0; rank < ranks.num_ranks(); ++rank) {
    std::byte here{};
    ranks.broadcast_idle(&here, 1, rank);
  }
}

LoadOptions share_of(Communicator& ranks, LoadOptions options) {
  options.share = {.rank = ranks.rank(), .num_ranks = ranks.num_ranks()};
  options.ranks = &ranks;
  return options;
}

void abort_after(Communicator& ranks, const std::exception& error) {
  ranks.abort_all(str("rank ", ranks.rank(), ": ", error.what()));
}

/// Ranks 1 and up.
class RankThreads final : public RankGroup {
 public:
  using Run = std::function<void(Communicator& ranks)>;

  /// Runs `run` for each of the other ranks in a thread of its own.
  RankThreads(const ThreadRanks& threads, const Run& run)
      : ends_(make_thread_communicators(threads.num_ranks, threads.timeout)),
        errors_(ends_.size()) {
    for (size_t rank = 1; rank < ends_.size(); ++rank) {
      threads_.emplace_back([this, run, rank] {
        try {
          run(*ends_[rank]);
        } catch (const std::exception& error) {
          errors_[rank] = std::current_exception();
          abort_after(*ends_[rank], error);
        }
      });
    }
  }
  ~RankThreads() override { join(); }

  Communicator& ranks() override { return *ends_[0]; }

  /// Waits for the threads, which have been aborted, and throws the first error of one of them that
  /// is not about another's.
  void rethrow() {
    join();
    for (const std::exception_ptr& error : errors_) {
      if (error == nullptr) continue;
      try {
        std::rethrow_exception(error);
      } catch (const DeviceError&) {  // most likely of the abort
      }
    }
  }

 private:
  void join() {
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  std::vector<std::unique_ptr<Communicator>> ends_;
  std::vector<std::exception_ptr> errors_;
  std::vector<std::thread> threads_;
};

/// Rank 0's end of processes.
class RankProcesses final : public RankGroup {
 public:
  explicit RankProcesses(std::unique_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}
  Communicator& ranks() override { return *ranks_; }

 private:
  const std::unique_ptr<Communicator> ranks_;
};

}  // namespace

LoadedDecoder load_ranked_model(ExecContext& context, const ThreadRanks& threads,
                                const HfConfig& config, const TensorSource& source,
                                const LoadProgress& progress, const LoadOptions& options) {
  const int num_threads = context.pool.num_threads();
  const auto run = [&config, &source, options, num_threads](Communicator& ranks) {
    ThreadPool pool(num_threads);
    ExecContext own{.pool = pool};
    const LoadedDecoder loaded = load_model(own, config, source, {}, share_of(ranks, options));
    await_all(ranks);
    follow_rank_zero(*loaded.model, ranks);
  };
  auto group = std::make_unique<RankThreads>(threads, run);
  Communicator& ranks = group->ranks();
  try {
    LoadedDecoder loaded = load_model(context, config, source, progress, share_of(ranks, options));
    await_all(ranks);
    loaded.model =
        std::make_unique<RankedModel>(std::move(loaded.model), context, std::move(group));
    return loaded;
  } catch (const std::exception& error) {
    abort_after(ranks, error);
    group->rethrow();
    throw;
  }
}

LoadedDecoder load_as_rank(ExecContext& context, std::unique_ptr<Communicator> ranks,
                           const HfConfig& config, const TensorSource& source,
                           const LoadProgress& progress, const LoadOptions& options) {
  try {
    LoadedDecoder loaded = load_model(context, config, source, progress, share_of(*ranks, options));
    await_all(*ranks);
    if (ranks->rank() > 0) {
      follow_rank_zero(*loaded.model, *ranks);
      return {};
    }
    loaded.model = std::make_unique<RankedModel>(std::move(loaded.model), context,
                                                 std::make_unique<RankProcesses>(std::move(ranks)));
    return loaded;
  } catch (const std::exception& error) {
    if (ranks != nullptr) abort_after(*ranks, error);
    throw;
  }
}

}  // namespace halley
