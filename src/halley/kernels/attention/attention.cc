#include "halley/kernels/attention/attention.h"

#include <algorithm>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/core/host_buffer.h"
#include "halley/kernels/attention/attention_unit.h"

namespace halley {
namespace {

// Below this many multiplications the pool is not worth waking: about 10 us on one core.
constexpr int64_t kSerialMultiplications = 200'000;
// With so many units a thread, splitting long ones does not balance the threads any better.
constexpr int64_t kUnitsPerThread = 4;

// Memory that grows and stays: a decode step calls attention once a layer, and fresh memory would
// cost page faults each time.
float* kept_memory(HostBuffer& buffer, int64_t num_floats) {
  const size_t num_bytes = static_cast<size_t>(num_floats) * sizeof(float);
  if (buffer.num_bytes() < num_bytes) buffer = HostBuffer(num_bytes);
  return buffer.as<float>().data();
}

// The calling thread's scratch and two sets of states, for units of at most num_rows rows.
struct ThreadMemory {
  AttentionScratch scratch;
  RowStates split, merged;
};

ThreadMemory thread_memory(int64_t num_rows, int64_t stride) {
  thread_local HostBuffer buffer;
  thread_local std::vector<const float*> queries;
  const int64_t rows = round_up(num_rows, kRowAlignment);
  const int64_t states = RowStates::num_floats(rows, stride);
  const int64_t total = 2 * kTileTokens * stride + rows * (kTileTokens + 1) + 2 * states;
  float* at = kept_memory(buffer, total);
  if (queries.size() < static_cast<size_t>(rows)) queries.resize(static_cast<size_t>(rows));
  const auto take = [&at](int64_t num_floats) {
    float* const begin = at;
    at += num_floats;
    return begin;
  };
  ThreadMemory memory;
  memory.scratch.rows = take(kTileTokens * stride);
  memory.scratch.keys = take(kTileTokens * stride);
  memory.scratch.scores = take(rows * kTileTokens);
  memory.scratch.rescale = take(rows);
  memory.scratch.queries = queries.data();
  memory.split = RowStates::at(take(states), rows);
  memory.merged = RowStates::at(take(states), rows);
  return memory;
}

// A unit, or one split of it where split >= 0; then its states go to floats from state_begin on.
struct Task {
  int64_t unit = 0;
  int64_t split = -1;
  int64_t state_begin = 0;
};

struct Plan {
  std::vector<AttentionUnit> units;
  std::vector<Task> tasks;
  std::vector<Task> first_split_tasks;  // of every unit that is split
  int64_t num_multiplications = 0;
  int64_t num_state_floats = 0;
};

void add_units(const AttentionCall& call, const BatchSequence& sequence, Plan& plan) {
  const int64_t step = std::max<int64_t>(1, kRowsPerUnit / call.group_size());
  // Long units first within a sequence, so that no thread starts a long one at the end.
  for (int64_t end = sequence.num_new_tokens; end > 0; end = (end - 1) / step * step) {
    const int64_t begin = (end - 1) / step * step;
    for (int64_t head = 0; head < call.cache.layout.num_kv_heads; ++head) {
      const AttentionUnit unit{&sequence, head, begin, end - begin};
      const PositionRange last = visible_range(call.problem, unit.position(end - begin - 1));
      plan.num_multiplications += 2 * (end - begin) * call.group_size() *
                                  call.cache.layout.head_dim * (last.end - last.begin);
      plan.units.push_back(unit);
    }
  }
}

Plan make_plan(const AttentionCall& call, std::span<const BatchSequence> sequences,
               int64_t num_threads) {
  Plan plan;
  for (const BatchSequence& sequence : sequences) add_units(call, sequence, plan);
  const auto num_units = static_cast<int64_t>(plan.units.size());
  const bool is_split = num_threads > 1 && num_units < kUnitsPerThread * num_threads &&
                        plan.num_multiplications > kSerialMultiplications;
  for (int64_t i = 0; i < num_units; ++i) {
    const AttentionUnit& unit = plan.units[static_cast<size_t>(i)];
    const PositionRange splits = splits_of(call.problem, unit);
    if (!is_split || splits.end - splits.begin == 1) {
      plan.tasks.push_back({i});
      continue;
    }
    plan.first_split_tasks.push_back({i, splits.begin, plan.num_state_floats});
    const int64_t floats =
        RowStates::num_floats(unit.num_tokens * call.group_size(), call.row_stride());
    for (int64_t split = splits.begin; split < splits.end; ++split) {
      plan.tasks.push_back({i, split, plan.num_state_floats});
      plan.num_state_floats += floats;
    }
  }
  return plan;
}

void run_whole_unit(const AttentionCall& call, const AttentionUnit& unit) {
  const ThreadMemory memory = thread_memory(unit.num_tokens * call.group_size(), call.row_stride());
  const PositionRange splits = splits_of(call.problem, unit);
  if (splits.end - splits.begin == 1) {
    attend_split(call, unit, splits.begin, memory.scratch, memory.split);
    write_output(call, unit, memory.split);
    return;
  }
  for (int64_t split = splits.begin; split < splits.end; ++split) {
    attend_split(call, unit, split, memory.scratch, memory.split);
    merge_split(call, unit, split, memory.split, memory.merged);
  }
  write_output(call, unit, memory.merged);
}

// Merges the states that the tasks of one unit's splits left, in the order of the splits.
void finish_split_unit(const AttentionCall& call, const Plan& plan, const Task& first_task,
                       float* states) {
  const AttentionUnit& unit = plan.units[static_cast<size_t>(first_task.unit)];
  const int64_t num_rows = unit.num_tokens * call.group_size();
  const int64_t floats = RowStates::num_floats(num_rows, call.row_stride());
  const ThreadMemory memory = thread_memory(num_rows, call.row_stride());
  const PositionRange splits = splits_of(call.problem, unit);
  for (int64_t split = splits.begin; split < splits.end; ++split) {
    float* at = states + first_task.state_begin + (split - splits.begin) * floats;
    merge_split(call, unit, split, RowStates::at(at, num_rows), memory.merged);
  }
  write_output(call, unit, memory.merged);
}

void check_problem(const AttentionCall& call, std::span<const BatchSequence> sequences) {
  const KvPageLayout& layout = call.cache.layout;
  const AttentionProblem& problem = call.problem;
  check_sequences(call.cache, sequences, call.q.num_rows);
  HALLEY_CHECK(problem.num_heads >= 1 && problem.num_heads % layout.num_kv_heads == 0,
               problem.num_heads, layout.num_kv_heads);
  HALLEY_CHECK(problem.window >= 0 && problem.soft_cap >= 0, problem.window, problem.soft_cap);
  const int64_t num_columns = problem.num_heads * layout.head_dim;
  HALLEY_CHECK(call.q.num_cols == num_columns && call.out.num_cols == num_columns &&
                   call.q.num_rows == call.out.num_rows,
               call.q.num_cols, call.out.num_cols, num_columns, call.q.num_rows, call.out.num_rows);
}

}  // namespace

void paged_attention(ExecContext& context, const AttentionProblem& problem,
                     const KvLayerView& cache, std::span<const BatchSequence> sequences,
                     ConstMatrix q, Matrix out) {
  const AttentionCall call{problem, cache, q, out};
  check_problem(call, sequences);
  const Plan plan = make_plan(call, sequences, context.pool.num_threads());
  thread_local HostBuffer buffer;
  float* states = kept_memory(buffer, plan.num_state_floats);
  const auto run_task = [&](int64_t index, int /*thread*/) {
    const Task& task = plan.tasks[static_cast<size_t>(index)];
    const AttentionUnit& unit = plan.units[static_cast<size_t>(task.unit)];
    if (task.split < 0) {
      run_whole_unit(call, unit);
      return;
    }
    const int64_t num_rows = unit.num_tokens * call.group_size();
    const ThreadMemory memory = thread_memory(num_rows, call.row_stride());
    attend_split(call, unit, task.split, memory.scratch,
                 RowStates::at(states + task.state_begin, num_rows));
  };
  const auto num_tasks = static_cast<int64_t>(plan.tasks.size());
  if (plan.num_multiplications <= kSerialMultiplications) {
    for (int64_t index = 0; index < num_tasks; ++index) run_task(index, 0);
  } else {
    context.pool.run(num_tasks, run_task);
  }
  context.pool.run(
      static_cast<int64_t>(plan.first_split_tasks.size()), [&](int64_t index, int /*thread*/) {
        finish_split_unit(call, plan, plan.first_split_tasks[static_cast<size_t>(index)], states);
      });
}

}  // namespace halley
