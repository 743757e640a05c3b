#include "halley/quant/base/input_slice.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/kernels/gemm/activation_quant.h"

namespace halley {
namespace {

/// Inputs whose activations share a scale in some rows and not in others; 1: none.
int64_t activation_block(ActivationQuant activation) {
  const bool has_blocks =
      activation == ActivationQuant::kE4m3Group128 || activation == ActivationQuant::kS4S8Block128;
  return has_blocks ? kActivationGroup : 1;
}

bool has_groups(const WeightDesc& desc, int64_t in_features) {
  return desc.group_size > 0 && desc.group_size < in_features;
}

/// The largest size of groups such that neither end of the range cuts one.
int64_t group_size_of(const WeightDesc& whole, int64_t in_features, const InputRange& range) {
  if (!has_groups(whole, in_features)) return whole.group_size == 0 ? 0 : range.size();
  int64_t size = std::gcd(whole.group_size, range.begin);
  if (range.end < in_features) size = std::gcd(size, range.end);
  return std::min(size, range.size());
}

WeightDesc desc_of(const WeightDesc& whole, int64_t in_features, const InputRange& range) {
  WeightDesc desc = whole;
  desc.group_size = group_size_of(whole, in_features, range);
  desc.num_s8_inputs = std::clamp<int64_t>(whole.num_s8_inputs - range.begin, 0, range.size());
  desc.stored_bytes *= static_cast<double>(range.size()) / static_cast<double>(in_features);
  desc.has_packed_codes = true;
  if (!whole.has_input_perm) return desc;
  desc.num_inputs = in_features;
  if (whole.declared_perm) {
    const auto begin = whole.declared_perm->begin();
    desc.declared_perm =
        std::make_shared<const std::vector<int32_t>>(begin + range.begin, begin + range.end);
  }
  return desc;
}

class InputSlice final : public StoredWeight {
 public:
  InputSlice(std::unique_ptr<StoredWeight> whole, int64_t in_features, const InputRange& range)
      : StoredWeight(desc_of(whole->desc(), in_features, range)),
        whole_(std::move(whole)),
        in_features_(in_features),
        range_(range) {
    for (const std::string& warning : whole_->warnings()) warn(warning);
  }

  TensorView dense_rows() const override {
    std::call_once(has_rows_, [this] { copy_rows(); });
    return rows_;
  }

  void check_data() const override {
    whole_->check_data();
    if (!whole_->desc().has_input_perm) return;
    const std::vector<int32_t> perm = whole_->input_perm();
    perm_.assign(perm.begin() + range_.begin, perm.begin() + range_.end);
  }

  std::vector<int32_t> input_perm() const override { return perm_; }

  void read_codes(const CodeBlock& block, uint8_t* quads) const override {
    read(&StoredWeight::read_codes, block, quads);
  }
  void read_lower(const CodeBlock& block, uint8_t* quads) const override {
    read(&StoredWeight::read_lower, block, quads);
  }

  void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const override {
    constexpr int64_t kGroupFloats = 2 * kPanelRows;
    const int64_t whole_size = whole_->desc().group_size;
    std::vector<float> all(static_cast<size_t>(ceil_div(in_features_, whole_size) * kGroupFloats));
    whole_->read_groups(row_begin, num_rows, all.data());
    for (int64_t g = 0; g < ceil_div(range_.size(), desc().group_size); ++g) {
      const int64_t k = range_.begin + g * desc().group_size;
      const float* from = all.data() + k / whole_size * kGroupFloats;
      float* to = groups + g * kGroupFloats;
      std::copy_n(from, num_rows, to);
      std::copy_n(from + kPanelRows, num_rows, to + kPanelRows);
    }
  }

 private:
  using Read = void (StoredWeight::*)(const CodeBlock&, uint8_t*) const;

  /// Whether the whole weight's codes are in stored order and the slice's in another.
  bool is_ordered() const { return !perm_.empty() && !whole_->desc().has_packed_codes; }

  /// Packed input k of the slice among the inputs that the whole weight's codes are counted by.
  int64_t whole_input(int64_t k) const {
    return is_ordered() ? perm_[static_cast<size_t>(k)] : range_.begin + k;
  }

  void read(Read read_plane, const CodeBlock& block, uint8_t* quads) const {
    CodeBlock all = block;
    all.k_begin = is_ordered() ? 0 : round_down(range_.begin + block.k_begin);
    all.k_end = is_ordered() ? in_features_ : range_.begin + block.k_end;
    if (!is_ordered() && all.k_begin == range_.begin + block.k_begin) {
      return (whole_.get()->*read_plane)(all, quads);
    }
    // A thread's own, since it is as large as a panel of the whole weight.
    thread_local std::vector<uint8_t> codes;
    codes.resize(static_cast<size_t>(ceil_div(all.k_end - all.k_begin, int64_t{4}) * kQuadValues));
    (whole_.get()->*read_plane)(all, codes.data());
    for (int64_t k = block.k_begin; k < block.k_end; ++k) {
      const int64_t from = whole_input(k);
      for (int64_t row = block.row_begin; row < block.row_begin + block.num_rows; ++row) {
        *code_at(quads, block, row, k) = *code_at(codes.data(), all, row, from);
      }
    }
  }

  static int64_t round_down(int64_t k) { return k / kQuadUnitInputs * kQuadUnitInputs; }

  void copy_rows() const {
    const TensorView all = whole_->dense_rows();
    const auto element_bytes = static_cast<size_t>(bits_of(all.dtype) / 8);
    const auto row_bytes = static_cast<size_t>(range_.size()) * element_bytes;
    const int64_t num_rows = all.shape.at(0);
    bytes_.resize(static_cast<size_t>(num_rows) * row_bytes);
    for (int64_t n = 0; n < num_rows; ++n) {
      const std::byte* row =
          all.data + static_cast<size_t>(n * in_features_ + range_.begin) * element_bytes;
      std::memcpy(bytes_.data() + static_cast<size_t>(n) * row_bytes, row, row_bytes);
    }
    rows_ = {.data = bytes_.data(), .dtype = all.dtype, .shape = {num_rows, range_.size()}};
  }

  const std::unique_ptr<StoredWeight> whole_;
  const int64_t in_features_;
  const InputRange range_;
  mutable std::vector<int32_t> perm_;  // by check_data()
  mutable std::once_flag has_rows_;
  mutable std::vector<std::byte> bytes_;
  mutable TensorView rows_;
};

}  // namespace

int64_t input_unit(const WeightDesc& desc, int64_t in_features) {
  const int64_t group = has_groups(desc, in_features) ? desc.group_size : 1;
  return std::lcm(std::lcm(group, activation_block(desc.activation)), kQuadUnitInputs);
}

std::unique_ptr<StoredWeight> slice_inputs(std::unique_ptr<StoredWeight> whole,
                                           const LinearSpec::Part& part, int64_t in_features,
                                           const InputRange& range) {
  HALLEY_CHECK(0 <= range.begin && range.begin < range.end && range.end <= in_features, range.begin,
               range.end, in_features);
  const int64_t block = activation_block(whole->desc().activation);
  const bool is_cut =
      range.begin % block != 0 || (range.end % block != 0 && range.end < in_features);
  if (is_cut) {
    throw UnsupportedError(str("layer ", quote(part.name), ": expected slices of its ", in_features,
                               " inputs that begin at multiples of ", block,
                               ", since as many activations share a scale, got inputs ",
                               range.begin, " to ", range.end, ". Use fewer ranks."));
  }
  return std::make_unique<InputSlice>(std::move(whole), in_features, range);
}

}  // namespace halley
