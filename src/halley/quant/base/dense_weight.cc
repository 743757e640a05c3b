#include "halley/quant/base/dense_weight.h"

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/quant/base/dense_tensor.h"

namespace halley {
namespace {

Shape stored_shape(const LinearSpec::Part& part, int64_t in_features) {
  Shape shape = {part.stored_rows, in_features};
  if (part.expert >= 0) shape.insert(shape.begin(), part.num_stored_experts);
  return shape;
}

class DenseWeight : public StoredWeight {
 public:
  DenseWeight(WeightDesc desc, TensorView rows)
      : StoredWeight(std::move(desc)), rows_(std::move(rows)) {}

  TensorView dense_rows() const override { return rows_; }

 private:
  TensorView rows_;
};

}  // namespace

std::string dense_weight_name(const LinearSpec::Part& part) {
  return part.expert >= 0 ? part.name : part.name + ".weight";
}

std::unique_ptr<StoredWeight> open_dense_weight(const TensorSource& source,
                                                const LinearSpec::Part& part, int64_t in_features) {
  const TensorInfo& info =
      find_dense_tensor(source, dense_weight_name(part), stored_shape(part, in_features));
  TensorView rows = source.view(info);
  if (part.expert >= 0) {
    rows = rows.rows(part.expert, part.expert + 1);
    rows.shape.erase(rows.shape.begin());
  }
  rows = rows.rows(part.row_begin, part.row_begin + part.out_features);
  WeightDesc desc;
  desc.stored_dtype = info.dtype;
  desc.layout = dense_layout_for(info.dtype);
  desc.bits = bits_of(info.dtype);
  desc.tensor_names = {info.name};
  desc.stored_bytes = static_cast<double>(rows.num_bytes());
  return std::make_unique<DenseWeight>(std::move(desc), std::move(rows));
}

TensorInfo expected_dense_tensor(const LinearSpec::Part& part, int64_t in_features, DType dtype) {
  return info_of(dense_weight_name(part), dtype, stored_shape(part, in_features));
}

void check_agreement(const TensorSource& source, const LinearSpec::Part& part, ConfigSays says,
                     bool is_quantized, const std::string& because) {
  if (says == ConfigSays::kEither || (says == ConfigSays::kQuantized) == is_quantized) return;
  const auto words = [](bool quantized) { return quantized ? "quantized" : "full-precision"; };
  throw CheckpointError(str(source.description(), ": layer ", quote(part.name), ": expected ",
                            words(says == ConfigSays::kQuantized), " tensors, since ", because,
                            ", got ", words(is_quantized), " ones. Correct the configuration."));
}

void reject_fused_experts(const std::string& where, const LinearSpec::Part& part) {
  throw UnsupportedError(str(where, ": layer ", quote(part.name),
                             ": expected experts in tensors of their own, got quantized ones fused "
                             "in one tensor. Use a checkpoint with one tensor for each expert."));
}

void reject_second_weight(const TensorSource& source, const LinearSpec::Part& part,
                          const std::string& codes_name) {
  throw CheckpointError(str(source.description(), ": layer ", quote(part.name),
                            ": expected its weight once, got tensors ", quote(codes_name), " and ",
                            quote(dense_weight_name(part)), ". Remove one of them."));
}

}  // namespace halley
