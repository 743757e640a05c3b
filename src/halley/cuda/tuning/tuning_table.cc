#include "halley/cuda/tuning/tuning_table.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <tuple>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/json/json.h"

namespace halley::cuda {
namespace {

constexpr const char* kFormat = "halley-tuned-plans";
constexpr int kVersion = 2;
constexpr JsonLimits kLimits = {.depth_max = 8, .num_values_max = 1'000'000};
constexpr int64_t kSizeMax = int64_t{1} << 24;  // of N, K and rows
constexpr int64_t kSettingMax = (int64_t{1} << 31) - 1;
constexpr int64_t kSmsMax = 4096;
/// Rows of the smallest tile: what is best for them is for fewer.
constexpr int64_t kSmallestTile = 16;

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
    return number(name, at(name), min, max);
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

  PlanSettings settings(const char* name) const {
    const Json& object = at(name);
    if (!object.is_object()) {
      fail(str(name, ": expected an object, got a ", type_name_of(object)));
    }
    PlanSettings settings;
    for (const auto& member : object.items()) {
      settings[member.key()] = number(member.key(), member.value(), 0, kSettingMax);
    }
    return settings;
  }

 private:
  int64_t number(const std::string& name, const Json& value, int64_t min, int64_t max) const {
    if (value.is_number_integer() && value >= min && value <= max) return value.get<int64_t>();
    fail(str(name, ": expected a whole number from ", min, " to ", max, ", got ",
             value.dump(-1, ' ', true).substr(0, 40)));
  }

  const Json& object_;
  std::string where_;
};

TunedPlan plan_of(const Members& members) {
  members.allow_only({"kernel", "N", "K", "group_size", "rows", "plan", "us"});
  TunedPlan plan;
  plan.gemm = {.kernel = members.text("kernel"),
               .N = members.number("N", 1, kSizeMax),
               .K = members.number("K", 1, kSizeMax)};
  if (members.has("group_size")) {
    plan.gemm.group_size = static_cast<int>(members.number("group_size", 1, kSizeMax));
  }
  plan.rows = members.number("rows", 1, kSizeMax);
  plan.settings = members.settings("plan");
  plan.microseconds = members.microseconds("us");
  return plan;
}

std::string line_of(const TunedPlan& plan) {
  OrderedJson row = {{"kernel", plan.gemm.kernel}, {"N", plan.gemm.N}, {"K", plan.gemm.K}};
  if (plan.gemm.group_size > 0) row["group_size"] = plan.gemm.group_size;
  row["rows"] = plan.rows;
  row["plan"] = plan.settings;
  row["us"] = std::round(plan.microseconds * 1000) / 1000;
  return row.dump();
}

bool is_before(const TunedPlan& a, const TunedPlan& b) {
  return std::tie(a.gemm, a.rows) < std::tie(b.gemm, b.rows);
}

bool is_same(const TunedPlan& a, const TunedPlan& b) {
  return a.gemm == b.gemm && a.rows == b.rows;
}

}  // namespace

int64_t setting_of(const PlanSettings& settings, const char* name, int64_t otherwise) {
  const auto found = settings.find(name);
  return found == settings.end() ? otherwise : found->second;
}

TuningTable::TuningTable(std::string device, int num_sms, std::vector<TunedPlan> plans)
    : device_(std::move(device)), num_sms_(num_sms), plans_(std::move(plans)) {
  std::sort(plans_.begin(), plans_.end(), is_before);
  const auto twice = std::adjacent_find(plans_.begin(), plans_.end(), is_same);
  if (twice == plans_.end()) return;
  throw InputError(str("tuned plans: two of ", twice->gemm.kernel, " ", twice->gemm.N, " x ",
                       twice->gemm.K, ", ", twice->rows,
                       " rows. Write the file anew with halley tune."));
}

TuningTable TuningTable::parse(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where, kLimits);
  const Members file(json, where);
  if (file.text("format") != kFormat) file.fail(str("format: expected ", quote(kFormat)));
  file.number("version", kVersion, kVersion);
  file.allow_only({"format", "version", "device", "sms", "plans"});
  const auto num_sms = static_cast<int>(file.number("sms", 1, kSmsMax));
  const Json& rows = file.at("plans");
  if (!rows.is_array()) file.fail("plans: expected an array");
  std::vector<TunedPlan> plans;
  for (const Json& row : rows) {
    plans.push_back(plan_of(Members(row, str(where, ": plans[", plans.size(), "]"))));
  }
  return {file.text("device"), num_sms, std::move(plans)};
}

std::string TuningTable::to_json() const {
  std::string lines;
  for (const TunedPlan& plan : plans_) {
    lines += str(lines.empty() ? "" : ",", "\n  ", line_of(plan));
  }
  return str("{\"format\": ", OrderedJson(kFormat).dump(), ", \"version\": ", kVersion,
             ",\n \"device\": ", OrderedJson(device_).dump(), ", \"sms\": ", num_sms_,
             ",\n \"plans\": [", lines, "]}\n");
}

const TunedPlan* TuningTable::find(const TunedGemm& gemm, int64_t M) const {
  const auto found =
      std::lower_bound(plans_.begin(), plans_.end(), TunedPlan{.gemm = gemm, .rows = M}, is_before);
  if (found == plans_.end() || found->gemm != gemm) return nullptr;
  const bool is_near = found->rows <= kSmallestTile || found->rows < 2 * M;
  return is_near ? &*found : nullptr;
}

bool TuningTable::has(const TunedGemm& gemm) const {
  const auto found =
      std::lower_bound(plans_.begin(), plans_.end(), TunedPlan{.gemm = gemm}, is_before);
  return found != plans_.end() && found->gemm == gemm;
}

void TuningTable::merge(std::vector<TunedPlan> plans) {
  // The new plan is the first of equal ones, and unique() keeps it.
  plans.insert(plans.end(), plans_.begin(), plans_.end());
  std::stable_sort(plans.begin(), plans.end(), is_before);
  plans.erase(std::unique(plans.begin(), plans.end(), is_same), plans.end());
  plans_ = std::move(plans);
}

}  // namespace halley::cuda
