// The weight of one part of a linear layer as a checkpoint stores it, and the interface that reads
// it: a format's module implements it, the loader packs from it.
//
// A code is one element of a quad layout (core/packed_weight.h), unpacked to a byte: a quantized
// value of `bits` bits, a signed 8-bit value plus 128, the byte of an e4m3 value, or one byte of an
// f16 value (kNestedF16Quad).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/check.h"
#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/core/packed_weight.h"
#include "halley/core/tensor.h"

namespace halley {

/// The facts that headers and configuration give.
struct WeightDesc {
  const char* format = "none";       // the name of its format
  DType stored_dtype = DType::kF16;  // of a dense weight, or of the qweight tensor
  PackedLayout layout = PackedLayout::kF16Panel;
  int bits = 16;  // of an element
  // Quad layouts, as in QuantParams; group_size is K where scales are per-channel.
  int64_t group_size = 0;
  ZeroKind zero_kind = ZeroKind::kPoint;
  bool is_symmetric = true;
  bool has_input_perm = false;
  /// input_perm() where it is known when the weight is opened: weights with equal permutations can
  /// be joined. Null where it is found later, with the data.
  std::shared_ptr<const std::vector<int32_t>> declared_perm;
  /// Stored inputs that input_perm() picks from, where it picks some only; 0: it has all.
  int64_t num_inputs = 0;
  /// read_codes() counts inputs in packed order, whatever input_perm() is.
  bool has_packed_codes = false;
  ActivationQuant activation = ActivationQuant::kNone;
  float activation_scale = 0;  // of the static kinds: per-tensor, finite, above zero
  int64_t num_s8_inputs = 0;   // of kS4S8Block128, with s4_clip
  float s4_clip = 1;
  /// All tensors of the checkpoint that the weight is made of; the bias is not among them.
  std::vector<std::string> tensor_names;
  /// Stored bytes of them, for this part's rows alone.
  double stored_bytes = 0;
};

/// Rows [row_begin, row_begin + num_rows) of the part, at most kPanelRows, and stored inputs
/// [k_begin, k_end); k_begin is a multiple of kQuadUnitInputs.
struct CodeBlock {
  int64_t row_begin = 0;
  int64_t num_rows = 0;
  int64_t k_begin = 0;
  int64_t k_end = 0;
};

/// The byte of code (row, k) of a block: quads[(k - k_begin) / 4 * kQuadValues + (row - row_begin)
/// * 4 + k % 4]. A caller that wants the rows at feature c of a panel passes quads + 4 * c.
inline uint8_t* code_at(uint8_t* quads, const CodeBlock& block, int64_t row, int64_t k) {
  const int64_t quad = (k - block.k_begin) / 4;
  return quads + quad * kQuadValues + (row - block.row_begin) * 4 + k % 4;
}

/// One part's weight [out_features, K]: out_features are the part's rows, 0 the first of them.
/// Views into a TensorSource that must outlive it. Immutable; any thread.
class StoredWeight {
 public:
  explicit StoredWeight(WeightDesc desc) : desc_(std::move(desc)) {}
  virtual ~StoredWeight() = default;
  StoredWeight(const StoredWeight&) = delete;
  StoredWeight& operator=(const StoredWeight&) = delete;

  const WeightDesc& desc() const { return desc_; }
  /// Warnings for the user although the weight can be loaded, such as a label that the data
  /// contradict.
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// Dense layouts only: the rows, [out_features, K].
  virtual TensorView dense_rows() const {
    HALLEY_CHECK(false, desc_.format);
    return {};
  }

  /// This and the functions below are for quad layouts only. check_data() is called first, once: it
  /// reads the scales, zero points and g_idx and throws CheckpointError that names layer, tensor,
  /// index, expected and got. The others then cannot fail.
  virtual void check_data() const {}
  /// Empty, or the order that makes the inputs of a group consecutive (act-order): packed input k
  /// is stored input input_perm()[k], each of 0, ..., K-1 once, or K of desc().num_inputs. Only
  /// where desc().has_input_perm.
  virtual std::vector<int32_t> input_perm() const { return {}; }
  /// Writes each code of the block to code_at(quads, ...), and nothing else. Inputs are in stored
  /// order, but for desc().has_packed_codes. Signed 8-bit values are written plus 128 (and so are
  /// their zero points). kNestedF16Quad: the upper bytes.
  virtual void read_codes(const CodeBlock& block, uint8_t* quads) const {
    HALLEY_CHECK(false, desc_.format, block.row_begin, quads);
  }
  /// As read_codes(), the lower bytes. kNestedF16Quad only, which has no groups.
  virtual void read_lower(const CodeBlock& block, uint8_t* quads) const {
    HALLEY_CHECK(false, desc_.format, block.row_begin, quads);
  }
  /// Writes the scale and the zero point (or offset, desc().zero_kind) of row r and group g to
  /// groups[g * 64 + (r - row_begin)] and groups[g * 64 + 32 + (r - row_begin)], for all groups of
  /// packed inputs.
  virtual void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const {
    HALLEY_CHECK(false, desc_.format, row_begin, num_rows, groups);
  }

 protected:
  void warn(std::string text) { warnings_.push_back(std::move(text)); }

 private:
  WeightDesc desc_;
  std::vector<std::string> warnings_;
};

}  // namespace halley
