// What the ranks of tensor parallelism exchange within a step on the CPU.
#pragma once

#include "halley/core/matrix.h"
#include "halley/models/base/decoder_step.h"
#include "halley/parallel/base/communicator.h"

namespace halley {

/// Adds the rows of all ranks, in place. Dense f32.
void sum_over_ranks(Communicator& ranks, Matrix rows);

/// y = op(x), this rank's part of a product whose parts are to be added: x [M, F] has its columns
/// of the layer's whole input. Activations with a scale per token get that of the whole input.
void run_input_slice(const DecoderStep& step, const LinearSpec& spec, const LinearOp& op,
                     ConstMatrix x, Matrix y);

/// Writes the logits of this rank's part of the vocabulary, [M, vocabulary.size()], and those of
/// all others to `logits` [M, V].
void gather_logits(const DecoderStep& step, ConstMatrix own, Matrix logits);

}  // namespace halley
