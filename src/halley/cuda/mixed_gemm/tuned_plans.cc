#include "halley/cuda/mixed_gemm/tuned_plans.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <tuple>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/mixed_gemm/tuned_file.h"
#include "halley/json/json.h"

namespace halley::cuda {
namespace {

constexpr const char* kFormat = "halley-tuned-plans";
constexpr int kVersion = 1;
constexpr JsonLimits kLimits = {.depth_max = 8, .num_values_max = 1'000'000};
constexpr int64_t kSizeMax = int64_t{1} << 24;  // of N, K and rows
constexpr int64_t kMultiprocessorsMax = 4096;
/// Tokens: what is best for them is for fewer.
constexpr int64_t kSmallestTile = kMixedTiles.front().tokens;
constexpr MixedKind kKinds[] = {MixedKind::kU4S8,   MixedKind::kU4GroupS8, MixedKind::kU4F16,
                                MixedKind::kU4Bf16, MixedKind::kU8F16,     MixedKind::kU8Bf16};

/// One object of the file, whose members are taken by name.
class Members {
 public:
  Members(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail(str("expected an object, got a ", type_name_of(object)));
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(str(where_, ": ", what, ". Write the file anew with halley tune."));
  }

  void allow_only(std::initializer_list<std::string_view> names) const {
    for (const auto& member : object_.items()) {
      if (std::find(names.begin(), names.end(), member.key()) == names.end()) {
        fail(str("unknown member ", quote(member.key())));
      }
    }
  }

  bool has(const char* name) const { return object_.contains(name); }

  const Json& at(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) fail(str("expected a member ", quote(name)));
    return *found;
  }

  int64_t number(const char* name, int64_t min, int64_t max) const {
    const Json& value = at(name);
    if (value.is_number_integer() && value >= min && value <= max) return value.get<int64_t>();
    fail(str(name, ": expected a whole number from ", min, " to ", max, ", got ",
             value.dump(-1, ' ', true).substr(0, 40)));
  }

  double microseconds(const char* name) const {
    const Json& value = at(name);
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number > 0 && number < 1e9)) fail(str(name, ": expected a time above 0"));
    return number;
  }

  std::string text(const char* name) const {
    const Json& value = at(name);
    if (!value.is_string()) fail(str(name, ": expected a string, got a ", type_name_of(value)));
    return value.get<std::string>();
  }

  bool flag(const char* name) const {
    const Json& value = at(name);
    if (!value.is_boolean()) fail(str(name, ": expected true or false"));
    return value.get<bool>();
  }

 private:
  const Json& object_;
  std::string where_;
};

MixedKind kind_of(const Members& members) {
  const std::string name = members.text("kind");
  for (const MixedKind kind : kKinds) {
    if (name == name_of(kind)) return kind;
  }
  members.fail(str("kind: expected u4_s8, u4_group_s8, u4_f16, u4_bf16, u8_f16 or u8_bf16, got ",
                   quote(name)));
}

MixedTiling tiling_of(const Members& members) {
  const int64_t tokens = members.number("tokens", 1, kSizeMax);
  const int64_t outputs = members.number("outputs", 1, kSizeMax);
  MixedTiling tiling = {
      .num_ranks = static_cast<int>(members.number("blocks_a_tile", 1, kRanksMax)),
      .blocks_per_multiprocessor =
          static_cast<int>(members.number("blocks_a_multiprocessor", 1, 2)),
      .shares_last_tiles = members.has("shares_last_tiles") && members.flag("shares_last_tiles")};
  for (size_t i = 0; i < kMixedTiles.size(); ++i) {
    if (kMixedTiles[i].tokens == tokens && kMixedTiles[i].outputs == outputs) {
      tiling.tile_index = static_cast<int>(i);
      return tiling;
    }
  }
  members.fail(str("tokens and outputs: no tile of ", tokens, " x ", outputs, " is compiled"));
}

TunedMixedPlan plan_of(const Members& members, const MixedDevice& device) {
  TunedMixedPlan plan;
  plan.kind = kind_of(members);
  plan.N = members.number("N", 1, kSizeMax);
  plan.K = members.number("K", 1, kSizeMax);
  plan.group_size = static_cast<int>(members.number("group_size", 32, kChunkInputs));
  if (plan.group_size != 32 && plan.group_size != 64 && plan.group_size != kChunkInputs) {
    members.fail(str("group_size: expected 32, 64 or 128, got ", plan.group_size));
  }
  plan.rows = members.number("rows", 1, kSizeMax);
  plan.microseconds = members.microseconds("us");
  plan.is_narrow = members.has("is_narrow") && members.flag("is_narrow");
  const MixedShape shape = {
      .kind = plan.kind, .M = plan.rows, .N = plan.N, .K = plan.K, .group_size = plan.group_size};
  if (plan.is_narrow) {
    members.allow_only({"kind", "N", "K", "group_size", "rows", "is_narrow", "us"});
    if (!can_be_narrow(shape)) {
      members.fail(
          str("rows: expected at most ", kNarrowTokens, " of a narrow plan, got ", plan.rows));
    }
    return plan;
  }
  members.allow_only({"kind", "N", "K", "group_size", "rows", "is_narrow", "tokens", "outputs",
                      "blocks_a_tile", "blocks_a_multiprocessor", "shares_last_tiles", "us"});
  plan.tiling = tiling_of(members);
  if (!can_tile(shape, device, plan.tiling)) {
    members.fail(
        "expected a tiling that fits in the device's shared memory and the layer's inputs");
  }
  return plan;
}

auto layer_of(const TunedMixedPlan& plan) {
  return std::tuple(plan.kind, plan.N, plan.K, plan.group_size);
}

auto place_of(const TunedMixedPlan& plan) {
  return std::tuple(plan.kind, plan.N, plan.K, plan.group_size, plan.rows);
}

bool is_before(const TunedMixedPlan& a, const TunedMixedPlan& b) {
  return place_of(a) < place_of(b);
}

std::optional<TunedMixedPlans>& plans_that_were_set() {
  static std::optional<TunedMixedPlans> plans;
  return plans;
}

}  // namespace

TunedMixedPlans::TunedMixedPlans(std::string device, int num_sms, std::vector<TunedMixedPlan> plans)
    : device_(std::move(device)), num_sms_(num_sms), plans_(std::move(plans)) {
  std::sort(plans_.begin(), plans_.end(), is_before);
  for (size_t i = 1; i < plans_.size(); ++i) {
    if (place_of(plans_[i - 1]) != place_of(plans_[i])) continue;
    const TunedMixedPlan& twice = plans_[i];
    throw InputError(str("tuned plans: two of ", twice.kind, " ", twice.N, " x ", twice.K, ", ",
                         twice.rows, " rows. Write the file anew with halley tune."));
  }
}

TunedMixedPlans TunedMixedPlans::parse(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where, kLimits);
  const Members file(json, where);
  file.allow_only({"format", "version", "device", "multiprocessors", "plans"});
  if (file.text("format") != kFormat) file.fail(str("format: expected ", quote(kFormat)));
  file.number("version", kVersion, kVersion);
  const auto num_sms = static_cast<int>(file.number("multiprocessors", 1, kMultiprocessorsMax));
  const Json& rows = file.at("plans");
  if (!rows.is_array()) file.fail("plans: expected an array");
  std::vector<TunedMixedPlan> plans;
  for (const Json& row : rows) {
    plans.push_back(
        plan_of(Members(row, str(where, ": plans[", plans.size(), "]")), {.num_sms = num_sms}));
  }
  return {file.text("device"), num_sms, std::move(plans)};
}

std::string TunedMixedPlans::to_json() const {
  const auto line_of = [](const TunedMixedPlan& plan) {
    OrderedJson row = {{"kind", name_of(plan.kind)},
                       {"N", plan.N},
                       {"K", plan.K},
                       {"group_size", plan.group_size},
                       {"rows", plan.rows}};
    if (plan.is_narrow) {
      row["is_narrow"] = true;
    } else {
      const MixedTile& tile = kMixedTiles[static_cast<size_t>(plan.tiling.tile_index)];
      row["tokens"] = tile.tokens;
      row["outputs"] = tile.outputs;
      row["blocks_a_tile"] = plan.tiling.num_ranks;
      row["blocks_a_multiprocessor"] = plan.tiling.blocks_per_multiprocessor;
      if (plan.tiling.shares_last_tiles) row["shares_last_tiles"] = true;
    }
    row["us"] = std::round(plan.microseconds * 1000) / 1000;
    return row.dump();
  };
  std::string lines;
  for (const TunedMixedPlan& plan : plans_) {
    lines += str(lines.empty() ? "" : ",", "\n  ", line_of(plan));
  }
  return str("{\"format\": ", OrderedJson(kFormat).dump(), ", \"version\": ", kVersion,
             ",\n \"device\": ", OrderedJson(device_).dump(), ", \"multiprocessors\": ", num_sms_,
             ",\n \"plans\": [", lines, "]}\n");
}

const TunedMixedPlan* TunedMixedPlans::find(const MixedShape& shape) const {
  const TunedMixedPlan wanted = {.kind = shape.kind,
                                 .N = shape.N,
                                 .K = shape.K,
                                 .group_size = shape.group_size,
                                 .rows = shape.M};
  const auto found = std::lower_bound(plans_.begin(), plans_.end(), wanted, is_before);
  if (found == plans_.end() || layer_of(*found) != layer_of(wanted)) return nullptr;
  const bool is_near = found->rows <= kSmallestTile || found->rows < 2 * shape.M;
  return is_near ? &*found : nullptr;
}

const TunedMixedPlans& built_in_tuned_plans() {
  static const TunedMixedPlans plans = [] {
    const auto whole = TunedMixedPlans::parse(tuned_plans_h200(), "the built-in plans of the H200");
    const auto ranks =
        TunedMixedPlans::parse(tuned_plans_h100_ranks(), "the built-in plans of H100s");
    HALLEY_CHECK(whole.num_sms() == ranks.num_sms());
    std::vector<TunedMixedPlan> both = whole.plans();
    both.insert(both.end(), ranks.plans().begin(), ranks.plans().end());
    return TunedMixedPlans(str(whole.device(), ", ", ranks.device()), whole.num_sms(), both);
  }();
  return plans;
}

const TunedMixedPlans& tuned_mixed_plans() {
  const auto& set = plans_that_were_set();
  return set ? *set : built_in_tuned_plans();
}

void set_tuned_mixed_plans(TunedMixedPlans plans) { plans_that_were_set() = std::move(plans); }

}  // namespace halley::cuda
