// Messages of rank 0 to the other ranks of a model: each call of its CausalLm, as bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "halley/base/check.h"
#include "halley/models/base/causal_lm.h"
#include "halley/models/base/step_runner.h"
#include "halley/sampling/base/token_choice.h"
#include "halley/sampling/base/token_mask.h"

namespace halley {

enum class RankCall : uint64_t {
  kPrepare,     // StepLimits
  kMakeMemory,  // MemoryRequest
  kFreeMemory,  // uint64_t: the memory
  kForward,     // RankStep
  kProfile,     // RankStep
  kStartSlot,   // RankSlot
  kLaunch,      // RankLaunch
  kChoose,      // RankChoices
  kEnd,
};

struct MemoryRequest {
  uint64_t memory = 0;  // its number
  uint64_t num_bytes = 0;
};

/// The pages of one layer: every rank has memories of the same sizes, each at its own address.
struct RankLayer {
  KvPageLayout layout;
  uint64_t memory = 0;
  uint64_t offset = 0;  // bytes into the memory
  int64_t num_pages = 0;

  bool operator==(const RankLayer&) const = default;
};

/// Owns what a ForwardBatch only refers to.
struct RankStep {
  Precision precision = Precision::kFull;
  std::vector<RankLayer> layers;  // empty: those of the step before
  std::vector<int32_t> token_ids, logit_rows, pages;
  std::vector<BatchSequence> sequences;  // page tables one after the other in `pages`

  /// Valid as long as this does not change.
  ForwardBatch batch() const {
    return {.token_ids = token_ids,
            .sequences = sequences,
            .logit_rows = logit_rows,
            .precision = precision};
  }
};

/// Calls of a StepRunner. Before a call, its results that rank 0 has waited for since the last one
/// are waited for.
struct RankSlot {
  int32_t slot = 0;
  TokenChoice choice;
  std::vector<int32_t> prompt_ids, output_ids;
};
struct RankLaunch {
  uint64_t num_waits = 0;
  std::vector<RowChoice> choices;
  RankStep step;
};
struct RankChoices {
  uint64_t num_waits = 0;
  std::vector<int32_t> slots;
  std::vector<TokenMask> allowed;  // of each slot
};

/// Appends values and arrays to bytes. The ranks run the same program, so that types are copied as
/// they lie in memory.
class MessageWriter {
 public:
  template <typename T>
  void put(const T& value) {
    put_all(std::span<const T>(&value, 1));
  }
  template <typename T>
  void put_array(std::span<const T> values) {
    put(static_cast<uint64_t>(values.size()));
    put_all(values);
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  template <typename T>
  void put_all(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto bytes = std::as_bytes(values);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

  std::vector<std::byte> bytes_;
};

/// The reverse. A message that ends too early is a bug of this program.
class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  T take() {
    T value;
    copy(std::span<T>(&value, 1));
    return value;
  }
  template <typename T>
  void take_array(std::vector<T>& values) {
    values.resize(take<uint64_t>());
    copy(std::span<T>(values));
  }

 private:
  template <typename T>
  void copy(std::span<T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    HALLEY_CHECK(values.size_bytes() <= bytes_.size(), values.size_bytes(), bytes_.size());
    if (!values.empty()) std::memcpy(values.data(), bytes_.data(), values.size_bytes());
    bytes_ = bytes_.subspan(values.size_bytes());
  }

  std::span<const std::byte> bytes_;
};

/// `layers` is sent where it is not empty.
std::vector<std::byte> write_step(const ForwardBatch& batch, Precision precision,
                                  std::span<const RankLayer> layers);
RankStep read_step(std::span<const std::byte> bytes);

std::vector<std::byte> write_slot(int32_t slot, const TokenChoice& choice,
                                  std::span<const int32_t> prompt_ids,
                                  std::span<const int32_t> output_ids);
RankSlot read_slot(std::span<const std::byte> bytes);

std::vector<std::byte> write_launch(uint64_t num_waits, const RunnerStep& step, Precision precision,
                                    std::span<const RankLayer> layers);
RankLaunch read_launch(std::span<const std::byte> bytes);

std::vector<std::byte> write_choices(uint64_t num_waits, std::span<const MaskedChoice> choices);
RankChoices read_choices(std::span<const std::byte> bytes);

}  // namespace halley
