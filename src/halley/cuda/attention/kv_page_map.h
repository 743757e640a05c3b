// How the copy engine sees a layer's pages of a KV cache of a 16-bit type.
#pragma once

#include <cuda.h>

#include "halley/kernels/kv/kv_cache_view.h"

namespace halley::attention {

/// Positions that one box holds: a power of two that divides a page and a tile of 128; 0 where the
/// engine cannot copy such pages to where the tensor cores read them, in groups of eight whole rows
/// of 64 or 128 elements.
int box_tokens(const KvPageLayout& layout);

/// From the group of eight rows that holds a key to that of its value.
int value_groups(const KvPageLayout& layout);

/// A map of five dimensions: 64 elements, 8 rows, panels of 64 columns, groups of eight rows in a
/// page (keys, then values), pages. A box holds box_tokens() > 0 rows as wgmma_layout.h has them.
/// Throws DeviceError where the driver has no such maps.
CUtensorMap page_map(const KvLayerView& cache);

}  // namespace halley::attention
