// A model's plan as `halley inspect --json` prints it.
#pragma once

#include "halley/json/json.h"
#include "halley/models/all/load_model.h"

namespace halley {

/// The weight's size in 16 bits over its size in memory; 0 where it takes none.
double compression(const LinearPlan& plan);

/// Shapes, format and bytes of the model, and the kernel of every weight.
OrderedJson to_json(const ModelPlan& plan);

}  // namespace halley
