#include "halley/quant/stored/part_tensors.h"

#include <string>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

bool is_full_precision(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBf16 || dtype == DType::kF32;
}

}  // namespace

bool has_quantized_weight(const TensorSource& source, const LinearSpec::Part& part) {
  const TensorInfo* weight = source.find(part.name + ".weight");
  return weight != nullptr && !is_full_precision(weight->dtype);
}

void reject_quantized_experts(const TensorSource& source, const LinearSpec::Part& part) {
  const TensorInfo* found = source.find(part.name);
  if (found != nullptr && is_full_precision(found->dtype)) found = nullptr;
  for (const char* suffix : {"_packed", "_scale", "_scale_inv", "_blocks", ".weight_packed"}) {
    if (found == nullptr) found = source.find(part.name + suffix);
  }
  if (found == nullptr) return;
  throw UnsupportedError(str(source.description(), ": tensor ", quote(found->name),
                             ": expected fused experts in full precision, got ", found->dtype, " ",
                             found->shape,
                             ", quantized. Use a checkpoint that stores each expert's weights as "
                             "tensors of their own."));
}

void reject_stray_tensor(const TensorSource& source, const LinearSpec::Part& part,
                         const char* suffix) {
  const TensorInfo* stray = source.find(part.name + suffix);
  if (stray == nullptr) return;
  const TensorInfo* weight = source.find(part.name + ".weight");
  const std::string got = weight == nullptr ? "none" : name_of(weight->dtype);
  throw CheckpointError(str(source.description(), ": tensor ", quote(part.name + ".weight"),
                            ": expected codes, since ", quote(stray->name), " is there, got ", got,
                            ". The file is incomplete or was changed: fetch it again."));
}

void reject_undeclared_tensor(const TensorSource& source, const std::string& name,
                              const std::string& because) {
  const TensorInfo* info = source.find(name);
  if (info == nullptr) return;
  throw CheckpointError(str(source.description(), ": tensor ", quote(name),
                            ": expected none, since ", because, ", got ", info->dtype, " ",
                            info->shape, ". Correct the configuration or the file."));
}

}  // namespace halley
