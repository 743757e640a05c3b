#include "halley/base/error.h"
#include "halley/models/all/gpu_model.h"

namespace halley {
namespace {

constexpr const char* kNoCuda =
    "--device cuda: expected a program that was built with CUDA, got one without. Build it where "
    "the CUDA toolkit is installed, or use --device cpu.";

}  // namespace

std::string why_no_gpu() { return kNoCuda; }

bool is_built_with_cuda() { return false; }

std::vector<std::vector<GpuLinearPlan>> plan_gpu_parts(const DecoderConfig&,
                                                       std::span<const DecoderPart>,
                                                       const LinearLoading&, DType) {
  throw UnsupportedError(kNoCuda);
}

void check_gpu_model(const DecoderConfig&, DType) { throw UnsupportedError(kNoCuda); }

std::unique_ptr<CausalLm> load_gpu_model(ExecContext&, const LinearLoading&, const LoadOptions&,
                                         const PartLoaded&, ModelPlan&) {
  throw UnsupportedError(kNoCuda);
}

}  // namespace halley
