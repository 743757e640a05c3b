// The options by which several ranks run a model together, and their start.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

#include "halley/core/exec_context.h"
#include "halley/models/all/load_model.h"
#include "halley/models/options/model_options.h"

namespace halley::cli {

void add_rank_options(CLI::App& app, RankOptions& options);
/// --enable-expert-parallel.
void add_expert_option(CLI::App& app, RankOptions& options);

/// Thrown on ranks other than 0 when rank 0 has ended: the process has done its part, and ends
/// with success.
struct RankHasEnded {};

/// Whether this process is a rank other than 0. Such a process does nothing but load its share of
/// the model and follow rank 0. Joins the job where a launcher started this process. Throws
/// InputError where the sizes that the options name are others than the job's.
bool is_other_rank(const RankOptions& options);

/// Whether the ranks are processes, which have one divided model at a time: all of them load the
/// same ones in the same order, each when that before is gone on rank 0.
bool are_ranks_processes(const RankOptions& options);

/// Ends this process's part in its job, if it has one: waits until the others end theirs.
void leave_job();

/// Ranks that share the threads of this process.
int num_local_ranks(const RankOptions& options);
/// Before the process first uses CUDA.
void prepare_local_ranks(const RankOptions& options);

/// Loads by load_model(), divided as the options say. Throws RankHasEnded.
LoadedDecoder load_divided(ExecContext& context, const RankOptions& options,
                           const ModelFiles& files, const LoadProgress& progress,
                           const LoadOptions& load);

}  // namespace halley::cli
