// The grouped product on the CPU, thread by thread, with the kernel's own arithmetic of indices.
#include "halley/cuda/moe/grouped_tiles.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace halley::cuda {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Problem {
  std::vector<int32_t> group_sizes;
  int num_outputs = 0, num_inputs = 0;
  bool is_gated = false;
  int num_blocks = 0;

  int num_experts() const { return static_cast<int>(group_sizes.size()); }
  int num_halves() const { return is_gated ? 2 : 1; }
  int num_slots() const { return std::accumulate(group_sizes.begin(), group_sizes.end(), 0); }
  std::vector<int32_t> expert_begin() const {
    std::vector<int32_t> begin = {0};
    for (const int32_t size : group_sizes) begin.push_back(begin.back() + size);
    return begin;
  }
};

template <typename Shape>
GroupedGrid grid_of(const Problem& problem) {
  return {
      .num_experts = problem.num_experts(),
      .tile_rows = Shape::kRows,
      .tile_outputs = Shape::kWeightRows / problem.num_halves(),
      .output_tiles = num_output_tiles(problem.num_outputs, problem.is_gated, Shape::kWeightRows)};
}

std::vector<int32_t> row_tiles_of(const Problem& problem, int tile_rows) {
  std::vector<int32_t> begin = {0};
  for (const int32_t size : problem.group_sizes) {
    begin.push_back(begin.back() + num_row_tiles(size, tile_rows));
  }
  return begin;
}

/// Small integers: every sum is exact, in any order.
struct Operands {
  std::vector<float> x;        // [num_slots, K]
  std::vector<float> weights;  // [E, halves, N, K]

  explicit Operands(const Problem& problem) {
    std::mt19937 random(5);
    const auto fill = [&](std::vector<float>& values, int64_t count) {
      values.resize(static_cast<size_t>(count));
      for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 9) - 4);
    };
    fill(x, int64_t{problem.num_slots()} * problem.num_inputs);
    fill(weights, int64_t{problem.num_experts()} * problem.num_halves() * problem.num_outputs *
                      problem.num_inputs);
  }
};

/// One block of the kernel; what it does to y is counted.
template <typename Shape>
class EmulatedBlock {
 public:
  EmulatedBlock(const Problem& problem, const Operands& operands, int block)
      : problem_(problem),
        operands_(operands),
        block_(block),
        grid_(grid_of<Shape>(problem)),
        expert_begin_(problem.expert_begin()),
        row_tile_begin_(row_tiles_of(problem, Shape::kRows)),
        stages_(Shape::kStages, std::vector<float>(Shape::kStageBytes / 2, kNan)),
        load_tile_(block) {}

  void run(std::vector<float>* y, std::vector<int>* num_writes) {
    for (int stage = 0; stage < Shape::kStages - 1; ++stage) load(stage);
    int stage = 0;
    for (int i = block_; i < num_tiles(); i += problem_.num_blocks) {
      const GroupedTile tile = tile_at(i);
      sums_.assign(Shape::kThreads, {});
      for (int input = 0; input < problem_.num_inputs; input += kGroupedInputs) {
        load(stage == 0 ? Shape::kStages - 1 : stage - 1);
        for (int warp = 0; warp < Shape::kThreads / 32; ++warp) multiply(stage, warp, tile);
        stage = stage == Shape::kStages - 1 ? 0 : stage + 1;
      }
      for (int thread = 0; thread < Shape::kThreads; ++thread) store(tile, thread, y, num_writes);
    }
  }

 private:
  using Fragment = std::array<std::array<float, 2>, 4>;  // four registers of two elements
  using Sums =
      std::array<std::array<std::array<float, 4>, 2 * Shape::kOutputPairs>, Shape::kRowFragments>;

  int num_tiles() const { return row_tile_begin_.back() * grid_.output_tiles; }
  GroupedTile tile_at(int tile) const {
    return find_tile(grid_, expert_begin_.data(), row_tile_begin_.data(), tile);
  }

  void load(int stage) {
    std::vector<float>& memory = stages_[static_cast<size_t>(stage)];
    // What the kernel does not write is whatever was there.
    std::fill(memory.begin(), memory.end(), kNan);
    if (load_tile_ >= num_tiles()) return;
    const GroupedTile tile = tile_at(load_tile_);
    const int padded_slots = (tile.num_slots + 15) / 16 * 16;
    const int K = problem_.num_inputs;
    for (int thread = 0; thread < Shape::kThreads; ++thread) {
      const int input = load_input_ + copy_chunk(thread) * kCopyInputs;
      const WeightRows rows =
          weight_rows_of<Shape>(thread, tile, problem_.num_outputs, problem_.is_gated);
      for (int i = 0; i < Shape::kWeightCopies; ++i) {
        const int64_t row =
            (int64_t{tile.expert} * problem_.num_halves() + rows.half) * problem_.num_outputs +
            rows.first_output + i * rows.step;
        copy(operands_.weights, i < rows.count ? row * K + input : -1, input,
             &memory[static_cast<size_t>(
                 (Shape::kXBytes + stage_offset(copy_row<Shape>(thread, i), copy_chunk(thread))) /
                 2)]);
      }
      for (int i = 0; i < Shape::kXCopies; ++i) {
        const int row = copy_row<Shape>(thread, i);
        if (row >= padded_slots) continue;
        const int64_t slot = tile.first_slot + row;
        copy(operands_.x, row < tile.num_slots ? slot * K + input : -1, input,
             &memory[static_cast<size_t>(stage_offset(row, copy_chunk(thread)) / 2)]);
      }
    }
    load_input_ += kGroupedInputs;
    if (load_input_ >= K) {
      load_input_ = 0;
      load_tile_ += problem_.num_blocks;
    }
  }

  void copy(const std::vector<float>& from, int64_t first, int input, float* to) const {
    for (int i = 0; i < kCopyInputs; ++i) {
      const bool is_read = first >= 0 && input + i < problem_.num_inputs;
      to[i] = is_read ? from.at(static_cast<size_t>(first + i)) : 0.0f;
    }
  }

  /// ldmatrix: lane i names a row of matrix i / 8; matrix j gives lane l elements of its row l / 4.
  template <typename OffsetOf>
  std::array<Fragment, 32> load_matrices(int stage, const OffsetOf& offset_of) const {
    std::array<Fragment, 32> lanes;
    for (int lane = 0; lane < 32; ++lane) {
      for (int matrix = 0; matrix < 4; ++matrix) {
        const int offset = offset_of(8 * matrix + lane / 4) / 2 + 2 * (lane % 4);
        for (int i = 0; i < 2; ++i) {
          lanes[static_cast<size_t>(lane)][static_cast<size_t>(matrix)][static_cast<size_t>(i)] =
              stages_[static_cast<size_t>(stage)].at(static_cast<size_t>(offset + i));
        }
      }
    }
    return lanes;
  }

  /// mma.m16n8k16 with registers b0 and b1 of b; PTX ISA, the figures of its fragments.
  void multiply_add(int warp, int fragment, int eight, const std::array<Fragment, 32>& a,
                    const std::array<Fragment, 32>& b, size_t b0) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        float sum = 0;
        for (int k = 0; k < 16; ++k) {
          const auto a_lane = static_cast<size_t>(row % 8 * 4 + k % 8 / 2);
          const auto a_register = static_cast<size_t>(row / 8 + k / 8 * 2);
          const auto b_lane = static_cast<size_t>(column * 4 + k % 8 / 2);
          const auto b_register = b0 + static_cast<size_t>(k / 8);
          sum += a[a_lane][a_register][static_cast<size_t>(k % 2)] *
                 b[b_lane][b_register][static_cast<size_t>(k % 2)];
        }
        sums_[static_cast<size_t>(32 * warp + lane)][static_cast<size_t>(fragment)]
             [static_cast<size_t>(eight)][static_cast<size_t>(i)] += sum;
      }
    }
  }

  void multiply(int stage, int warp, const GroupedTile& tile) {
    const ThreadPlace<Shape> place(32 * warp);
    for (int step = 0; step < kGroupedInputs / 16; ++step) {
      for (int i = 0; i < place.num_fragments(tile.num_slots); ++i) {
        const auto a = load_matrices(stage, [&](int lane) {
          return stage_offset(place.first_row + x_lane_row(lane), 2 * step + x_lane_chunk(lane)) +
                 i * 16 * kStageRowBytes;
        });
        for (int pair = 0; pair < Shape::kOutputPairs; ++pair) {
          const auto b = load_matrices(stage, [&](int lane) {
            return Shape::kXBytes +
                   stage_offset(place.first_weight_row + weight_lane_row(lane),
                                2 * step + weight_lane_chunk(lane)) +
                   pair * 16 * kStageRowBytes;
          });
          multiply_add(warp, i, 2 * pair, a, b, 0);
          multiply_add(warp, i, 2 * pair + 1, a, b, 2);
        }
      }
    }
  }

  void store(const GroupedTile& tile, int thread, std::vector<float>* y,
             std::vector<int>* num_writes) const {
    const ThreadPlace<Shape> place(thread);
    const Sums& sums = sums_[static_cast<size_t>(thread)];
    const auto put = [&](int row, int output, float value) {
      if (output >= problem_.num_outputs) return;
      const auto at = static_cast<size_t>((tile.first_slot + row) * problem_.num_outputs + output);
      y->at(at) = value;
      ++num_writes->at(at);
    };
    for (int part = 0; part < 2 * Shape::kRowFragments; ++part) {
      const int row = place.row_of_part(part);
      if (row >= tile.num_slots) continue;
      for (int pair = 0; pair < Shape::kOutputPairs; ++pair) {
        const int output = tile.first_output + place.output_of_pair(pair, problem_.is_gated);
        for (int i = 0; i < 2; ++i) {
          const auto at = static_cast<size_t>(part % 2 * 2 + i);
          const auto& fragment = sums[static_cast<size_t>(part / 2)];
          const float low = fragment[static_cast<size_t>(2 * pair)][at];
          const float high = fragment[static_cast<size_t>(2 * pair + 1)][at];
          if (problem_.is_gated) {
            put(row, output + i, combined(low, high));
          } else {
            put(row, output + i, low);
            put(row, output + 8 + i, high);
          }
        }
      }
    }
  }

 public:
  /// Stands for a gated activation: exact, and not symmetric.
  static float combined(float gate, float up) { return gate * 4096 + up; }

 private:
  const Problem& problem_;
  const Operands& operands_;
  int block_;
  GroupedGrid grid_;
  std::vector<int32_t> expert_begin_, row_tile_begin_;
  std::vector<std::vector<float>> stages_;
  std::vector<Sums> sums_;
  int load_tile_, load_input_ = 0;
};

template <typename Shape>
void expect_right(const Problem& problem) {
  const Operands operands(problem);
  const int N = problem.num_outputs, K = problem.num_inputs;
  const auto num_elements = static_cast<size_t>(problem.num_slots() * N);
  std::vector<float> y(num_elements, kNan);
  std::vector<int> num_writes(num_elements, 0);
  for (int block = 0; block < problem.num_blocks; ++block) {
    EmulatedBlock<Shape>(problem, operands, block).run(&y, &num_writes);
  }
  const std::vector<int32_t> begin = problem.expert_begin();
  for (int e = 0; e < problem.num_experts(); ++e) {
    for (int slot = begin[static_cast<size_t>(e)]; slot < begin[static_cast<size_t>(e) + 1];
         ++slot) {
      for (int n = 0; n < N; ++n) {
        float sums[2] = {0, 0};
        for (int half = 0; half < problem.num_halves(); ++half) {
          const float* w =
              operands.weights.data() + ((e * problem.num_halves() + half) * N + n) * K;
          for (int k = 0; k < K; ++k)
            sums[half] += operands.x[static_cast<size_t>(slot * K + k)] * w[k];
        }
        const float expected =
            problem.is_gated ? EmulatedBlock<Shape>::combined(sums[0], sums[1]) : sums[0];
        const auto at = static_cast<size_t>(slot * N + n);
        ASSERT_EQ(num_writes[at], 1) << "expert " << e << " slot " << slot << " output " << n;
        ASSERT_EQ(y[at], expected) << "expert " << e << " slot " << slot << " output " << n;
      }
    }
  }
}

TEST(GroupedTiles, NarrowProductsAreRight) {
  for (const bool is_gated : {false, true}) {
    expect_right<NarrowShape>({{1, 0, 3, 33, 0}, 70, 72, is_gated, 3});
    expect_right<NarrowShape>({{0, 0, 16, 17}, 33, 9, is_gated, 20});
    expect_right<NarrowShape>({{32, 0, 1}, 64, 700, is_gated, 1});
  }
}

TEST(GroupedTiles, WideProductsAreRight) {
  for (const bool is_gated : {false, true}) {
    expect_right<WideShape>({{5, 0, 129}, 131, 65, is_gated, 2});
    expect_right<WideShape>({{64, 80}, 17, 128, is_gated, 9});
  }
}

TEST(GroupedTiles, EveryPieceOfTheResultIsOneTiles) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    Problem problem;
    for (int e = 0; e < 1 + static_cast<int>(random() % 130); ++e) {
      problem.group_sizes.push_back(random() % 3 == 0 ? 0 : static_cast<int32_t>(random() % 200));
    }
    problem.num_outputs = 1 + static_cast<int>(random() % 300);
    const GroupedGrid grid = grid_of<NarrowShape>(problem);
    const std::vector<int32_t> begin = problem.expert_begin();
    const std::vector<int32_t> row_tiles = row_tiles_of(problem, grid.tile_rows);
    std::set<std::array<int, 3>> seen;
    int64_t covered = 0;
    for (int i = 0; i < row_tiles.back() * grid.output_tiles; ++i) {
      const GroupedTile tile = find_tile(grid, begin.data(), row_tiles.data(), i);
      const auto e = static_cast<size_t>(tile.expert);
      ASSERT_TRUE(seen.insert({tile.expert, tile.first_slot, tile.first_output}).second);
      ASSERT_LT(tile.first_output, problem.num_outputs);
      ASSERT_GE(tile.num_slots, 1);
      ASSERT_LE(tile.num_slots, grid.tile_rows);
      ASSERT_EQ((tile.first_slot - begin[e]) % grid.tile_rows, 0);
      ASSERT_LE(tile.first_slot + tile.num_slots, begin[e + 1]);
      covered += int64_t{tile.num_slots} *
                 std::min(grid.tile_outputs, problem.num_outputs - tile.first_output);
    }
    EXPECT_EQ(covered, int64_t{problem.num_slots()} * problem.num_outputs);
  }
}

/// The eight rows that one phase of ldmatrix reads, and the eight chunks of a row that one phase of
/// copies writes, lie in different banks.
TEST(GroupedTiles, StagesHaveNoBankConflicts) {
  for (int first = 0; first < 32; first += 8) {
    for (int chunk = 0; chunk < kRowChunks; ++chunk) {
      std::set<int> banks_of_rows, banks_of_chunks;
      for (int i = 0; i < 8; ++i) {
        banks_of_rows.insert(stage_offset(first + i, chunk) % 128);
        banks_of_chunks.insert(stage_offset(first + chunk, i) % 128);
      }
      EXPECT_EQ(banks_of_rows.size(), 8u);
      EXPECT_EQ(banks_of_chunks.size(), 8u);
    }
  }
}

}  // namespace
}  // namespace halley::cuda
