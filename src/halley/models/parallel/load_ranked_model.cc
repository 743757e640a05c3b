#include "halley/models/parallel/load_ranked_model.h"

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "halley/base/env.h"
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

LoadOptions share_of(RankLinks& links, LoadOptions options, int ranks_per_gpu = 1) {
  const bool has_whole_experts = options.share.has_whole_experts;
  options.share = links.share();
  options.share.has_whole_experts = has_whole_experts;
  options.ranks = links.ranks();
  options.stages = links.stages();
  // On GPUs each rank of a machine has its own, from the first one's on.
  options.gpu_ordinal += links.rank_in_machine() / ranks_per_gpu;
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

  RankLinks& links() override { return *links_; }
  Communicator& ranks() { return *ends_[0]; }
  /// To be called once, while the other ranks make theirs.
  void make_links(int num_stages) { links_ = std::make_unique<RankLinks>(ranks(), num_stages); }

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
  std::unique_ptr<RankLinks> links_;
  std::vector<std::exception_ptr> errors_;
  std::vector<std::thread> threads_;
};

/// Rank 0's end of processes.
class RankProcesses final : public RankGroup {
 public:
  RankProcesses(std::unique_ptr<Communicator> ranks, std::unique_ptr<RankLinks> links)
      : ranks_(std::move(ranks)), links_(std::move(links)) {}
  RankLinks& links() override { return *links_; }

 private:
  const std::unique_ptr<Communicator> ranks_;
  const std::unique_ptr<RankLinks> links_;
};

}  // namespace

void load_kernels_eagerly() { set_env_if_absent("CUDA_MODULE_LOADING", "EAGER"); }

LoadedDecoder load_ranked_model(ExecContext& context, const ThreadRanks& threads,
                                const HfConfig& config, const TensorSource& source,
                                const LoadProgress& progress, const LoadOptions& options) {
  const int num_threads = context.pool.num_threads();
  const auto run = [&config, &source, options, num_threads, threads](Communicator& ranks) {
    ThreadPool pool(num_threads);
    ExecContext own{.pool = pool};
    RankLinks links(ranks, threads.num_stages);
    const LoadedDecoder loaded =
        load_model(own, config, source, {}, share_of(links, options, threads.ranks_per_gpu));
    await_all(ranks);
    follow_rank_zero(*loaded.model, links);
  };
  auto group = std::make_unique<RankThreads>(threads, run);
  Communicator& ranks = group->ranks();
  try {
    group->make_links(threads.num_stages);
    LoadedDecoder loaded = load_model(context, config, source, progress,
                                      share_of(group->links(), options, threads.ranks_per_gpu));
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

LoadedDecoder load_as_rank(ExecContext& context, ProcessRank rank, const HfConfig& config,
                           const TensorSource& source, const LoadProgress& progress,
                           const LoadOptions& options) {
  Communicator& ranks = *rank.ranks;
  auto links = std::make_unique<RankLinks>(ranks, rank.num_stages);
  LoadedDecoder loaded = load_model(context, config, source, progress, share_of(*links, options));
  await_all(ranks);
  if (ranks.rank() > 0) {
    follow_rank_zero(*loaded.model, *links);
    return {};
  }
  loaded.model = std::make_unique<RankedModel>(
      std::move(loaded.model), context,
      std::make_unique<RankProcesses>(std::move(rank.ranks), std::move(links)));
  return loaded;
}

}  // namespace halley
