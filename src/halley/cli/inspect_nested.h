// The part of `halley inspect` that shows which layers can hold two precisions.
#pragma once

#include "halley/json/json.h"
#include "halley/quant/methods/nested_fit.h"

namespace halley::cli {

OrderedJson nested_fit_json(const NestedFit& fit);
void print_nested_fit(const NestedFit& fit);

}  // namespace halley::cli
