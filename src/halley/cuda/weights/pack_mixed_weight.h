// Weights of 4 and 8 bits in quad layouts, turned on the GPU to the chunks that the mixed products
// read.
#pragma once

#include <cstdint>
#include <string>

#include "halley/cuda/mixed_gemm/mixed_layout.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/weights/decode_quads.h"

namespace halley::cuda {

/// Why a weight's numbers do not fit the kind: bits of *rejections below.
enum MixedRejection : uint32_t {
  kMixedZero = 1,    // a zero that is no integer of 0 to zero_max()
  kMixedScale = 2,   // a scale that the activations' type has not, or that makes numbers beyond it
  kMixedFactor = 4,  // groups of an output are no small multiples of one number
};

/// "zeros of groups are no integers from 0 to 16"; of all bits.
std::string why_rejected(MixedKind kind, uint32_t rejections);

/// Some whole panels of a weight in kU4Quad, or in kU8Quad as the kind says, on the device.
struct MixedPanels {
  QuadPanels quads = {};    // input_perm is not read: chunks keep the packed order
  int64_t num_outputs = 0;  // in these panels, of which chunks are filled up
  int64_t K = 0;
  MixedKind kind = MixedKind::kU4F16;
  const float* units = nullptr;  // kU4GroupS8: of these outputs, as find_units() left them
};

/// chunks = the panels' codes and groups (mixed_layout.h), from a panel that is a multiple of 128
/// outputs on. Rejections are added to *rejections (0 before); what is written is of no use then.
/// Numerics: as pack_mixed() of the same numbers. ZeroKind::kOffset of 16-bit kinds: scale * zero
/// that was rounded to f16 or bf16 is taken for the product.
void pack_mixed_panels(const CudaContext& context, const MixedPanels& panels, uint8_t* chunks,
                       uint32_t* rejections);

/// units[n] = the largest number of which all scales and offsets of output n are whole multiples.
/// Of ZeroKind::kOffset. kMixedFactor where multiples do not fit.
void find_units(const CudaContext& context, const MixedPanels& panels, float* units,
                uint32_t* rejections);

}  // namespace halley::cuda
