// Exchanges among the ranks of tensor parallelism within a step on the CPU.
#pragma once

#include "halley/core/matrix.h"
#include "halley/models/base/decoder_step.h"
#include "halley/parallel/base/communicator.h"

namespace halley {

/// Adds the rows of all ranks, in place. Dense f32.
void sum_over_ranks(Communicator& ranks, Matrix rows);

/// y = op(x), this rank's part of a sum over the ranks: x [M, F] has its columns of the layer's
/// whole input. Activations with a per-token scale get that of the whole input. All ranks call it
/// for a layer that has LinearSpec::inputs; one that is whole exchanges nothing.
void run_input_slice(const DecoderStep& step, const LinearSpec& spec, const LinearOp& op,
                     ConstMatrix x, Matrix y);

/// Writes the logits of this rank's part of the vocabulary, [M, vocabulary.size()], and those of
/// all others to `logits` [M, V].
void gather_logits(const DecoderStep& step, ConstMatrix own, Matrix logits);

}  // namespace halley
