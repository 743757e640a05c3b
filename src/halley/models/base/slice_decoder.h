// Tensor parallelism: what one of several ranks holds of a decoder.
#pragma once

#include <cstdint>

#include "halley/models/base/decoder_config.h"
#include "halley/quant/base/linear_loader.h"

namespace halley {

/// The decoder as one rank runs it: the layers of its stage, of which the first has the most; of
/// each, a share of the heads (key and value heads are in several ranks
/// where there are fewer than ranks), of the rows of MLPs and experts, and of the vocabulary; norms
/// and routers are whole. With RankShare::has_whole_experts it has a share of the experts, each
/// whole, instead of a share of the rows of each. The results of `o`, of MLPs and of embeddings are
/// to be added over the ranks. `whole` when there is one rank.
///
/// Reads headers, to cut inputs between groups of scales. Throws UnsupportedError that says which
/// numbers of ranks fit where the heads cannot be divided, where an MLP has fewer groups than there
/// are ranks, and where there are fewer layers than stages; and for whole experts where there are
/// none, or fewer than ranks.
DecoderConfig slice_decoder(const DecoderConfig& whole, const LinearLoading& loading,
                            const RankShare& share);

}  // namespace halley
