// A rank other than 0: it does what rank 0 does, when that says so.
#pragma once

#include "halley/models/base/causal_lm.h"
#include "halley/models/parallel/rank_links.h"

namespace halley {

/// Runs the calls of rank 0's RankedModel on this rank's share until that ends. Throws what the
/// model and the communicator throw; the caller then aborts, so that rank 0 hears of it. (A step
/// that every rank rejects alike, before it began, is rank 0's to report.)
void follow_rank_zero(CausalLm& model, RankLinks& links);

}  // namespace halley
